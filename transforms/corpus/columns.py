"""The columns that options name, looked for in a file before any row of it is embedded."""

import functools
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from transforms.base.arrow import parquet_bytes, without_views
from transforms.base.errors import OptionError
from transforms.base.values import nearest
from transforms.corpus.column_types import STR, ColumnType, can_read, word_for_values
from transforms.corpus.csv_rows import dialect_of
from transforms.corpus.files import JSON, PLAIN, SEPARATED, InputFile
from transforms.corpus.json_values import read_json
from transforms.corpus.lines import read_lines
from transforms.corpus.nested import all_keys, all_names, has_value, type_at, value_at
from transforms.corpus.spans import footer_of
from transforms.corpus.tables import table_schema

BY_FIRST_ROW = "its columns, by its first row"
TEXT = "text"  # the column that plain text has
Kinds = Mapping[str, ColumnType]
NO_KINDS: Kinds = MappingProxyType({})


def kept_types(
    file: InputFile,
    text: str | None,
    id_column: str | None,
    keep: tuple[str, ...],
    types: Kinds = NO_KINDS,
) -> tuple[tuple[str, str], ...]:
    """Name and Arrow type of each kept column; those of JSON and CSV that are not among `types`
    have `open_types`.

    `text` is None where a template makes the text, which asks for no column. Raises OptionError
    where the file lacks a named column or has it in a wrong type. A kept key of JSON may come later
    in a file than its first rows, or never: see `keys_found`.
    """
    if file.format in JSON:
        _check_keys(file, text, id_column)
    elif file.format in SEPARATED:
        _check_header(file, text, id_column, keep)
    elif file.format not in PLAIN:
        schema = check_columns(file, text, id_column, keep, types)
        return tuple(
            (name, str(types[name].arrow if name in types else type_at(schema, name)))
            for name in keep
        )
    elif set(keep) - {text or TEXT} or id_column:
        option, name = (
            ("--id-column", id_column) if id_column else ("--keep-columns", ",".join(keep))
        )
        raise OptionError(
            f"{file.path} is plain text and has no column {name} ({option}); make it a table, as"
            f" CSV, or give it a --store of its own without {option}"
        )
    else:
        return tuple((name, str(STR.arrow)) for name in keep)
    return tuple((name, str(types[name].arrow)) for name in keep if name in types)


def open_types(file: InputFile, keep: tuple[str, ...], types: Kinds) -> tuple[tuple[str, str], ...]:
    """Name of each kept column of JSON and CSV whose type is open, with the word for the values in
    its first rows.

    That is "" where JSON has no value there, and for CSV, whose values can be read as any type.
    """
    names = [name for name in keep if name not in types]
    if file.format in SEPARATED:
        return tuple((name, "") for name in names)
    if file.format not in JSON or not names:
        return ()
    rows = first_json_rows(file)
    return tuple((name, word_for_values(value_at(row, name) for row in rows)) for name in names)


def check_columns(
    file: InputFile,
    text: str | None,
    id_column: str | None,
    keep: tuple[str, ...],
    types: Kinds = NO_KINDS,
) -> pa.Schema:
    """The schema of Parquet and of other tables, once the named columns are in it with types that
    can be used.

    Raises OptionError naming the file, the column, what was found and the option that mends it.
    """
    schema = schema_of(file)
    for option, name in _named(text, id_column, keep):
        if type_at(schema, name) is None:
            raise OptionError(
                f"{file.path} has no column {name}"
                f" ({option}){_columns('its columns', name, all_names(schema))}"
            )
    if text is not None and not is_string(found := type_at(schema, text)):
        raise OptionError(
            f"{file.path}: column {text} is {found}, not string; name another --text-column or"
            " cast it"
        )
    if id_column is not None and not is_id(found := type_at(schema, id_column)):
        raise OptionError(
            f"{file.path}: column {id_column} is {found}; ids must be strings, integers, UUIDs or"
            " bytes of a fixed number (--id-column)"
        )
    for name in keep:
        found = type_at(schema, name)
        if name in types and not can_read(found, types[name]):
            raise OptionError(
                f"{file.path}: column {name} is {found}, which is not read as {types[name].word}"
                " (--keep-columns); name another type, or cast it"
            )
        if name not in types and not can_be_kept(found):
            raise OptionError(
                f"{file.path}: column {name} is {found}, which a Parquet file cannot hold"
                " (--keep-columns); cast it or leave it out"
            )
    return schema


@functools.lru_cache(64)
def can_be_kept(kind: pa.DataType) -> bool:
    """Whether rows of a column of this type can be taken, and written as Parquet."""
    try:
        rows = without_views(pa.RecordBatch.from_arrays([pa.nulls(1, kind)], ["kept"])).take(
            pa.array([0])
        )
        parquet_bytes(rows)
    except (pa.ArrowException, OSError):
        return False
    return True


def is_string(found: pa.DataType | None) -> bool:
    """Whether a column of this type holds text (dictionary-encoded text included)."""
    if found is not None and pa.types.is_dictionary(found):
        found = found.value_type
    return found is not None and (
        pa.types.is_string(found)
        or pa.types.is_large_string(found)
        or pa.types.is_string_view(found)
    )


def is_bytes(found: pa.DataType) -> bool:
    """Whether a column of this type holds bytes of any number, which are no text."""
    return (
        pa.types.is_binary(found)
        or pa.types.is_large_binary(found)
        or pa.types.is_binary_view(found)
    )


def is_id(found: pa.DataType | None) -> bool:
    """Whether the values of a column of this type can be ids."""
    return is_string(found) or (
        found is not None
        and (
            pa.types.is_integer(found)
            or pa.types.is_fixed_size_binary(found)
            or isinstance(found, pa.UuidType)
        )
    )


def _named(text: str | None, id_column: str | None, keep: tuple[str, ...]) -> list[tuple[str, str]]:
    """The columns that options name, each with its option."""
    named = [
        ("--text-column", text),
        ("--id-column", id_column),
        *(("--keep-columns", name) for name in keep),
    ]
    return [(option, name) for option, name in named if name is not None]


def _check_header(
    file: InputFile, text: str | None, id_column: str | None, keep: tuple[str, ...]
) -> None:
    """Raise OptionError where the header of CSV or TSV lacks a named column, or has it twice."""
    dialect = dialect_of(file)
    for option, name in _named(text, id_column, keep) if dialect.header else ():
        times = dialect.header.count(name) or int(dialect.place_of(name) is not None)
        if times != 1:
            said = f"{times} columns {name}" if times else f"no column {name}"
            columns = _columns(BY_FIRST_ROW, name, dialect.header)
            mend = (
                "; say --delimiter if it has more than this one" if len(dialect.header) == 1 else ""
            )
            raise OptionError(f"{file.path} has {said} ({option}){columns}{mend}")


def keys_found(file: InputFile, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Those of the names that the file has; in JSON, as keys of its first rows. None where there
    are no such rows.
    """
    if file.format not in JSON:
        return names
    rows = first_json_rows(file)
    return (
        tuple(name for name in names if any(has_value(row, name) for row in rows)) if rows else None
    )


def template_names_found(
    file: InputFile, names: tuple[str, ...], option: str
) -> tuple[str, ...] | None:
    """Those names of a template that the file has, which need not be all; None where it has no rows
    to tell.

    Raises OptionError for a column of bytes, which is no text.
    """
    if file.format in JSON:
        return keys_found(file, names)
    if file.format in SEPARATED:
        dialect = dialect_of(file)
        return (
            tuple(name for name in names if dialect.place_of(name) is not None)
            if dialect.header
            else None
        )
    if file.format in PLAIN:
        return tuple(name for name in names if name == TEXT)
    schema = schema_of(file)
    types = {name: kind for name in names if (kind := type_at(schema, name)) is not None}
    for name, kind in types.items():
        if is_bytes(kind):
            raise OptionError(
                f"{file.path}: column {name} is {kind}, not text ({option}); cast it or leave"
                " it out"
            )
    return tuple(types)


def no_column(file: InputFile, name: str, option: str) -> OptionError:
    """The error for a column that a file has not, in JSON a key that none of its first rows has."""
    if file.format in JSON:
        said, names = "keys of its first rows", keys_of(first_json_rows(file))
    elif file.format in SEPARATED:
        said, names = BY_FIRST_ROW, list(dialect_of(file).header)
    else:
        said, names = "its columns", [TEXT] if file.format in PLAIN else all_names(schema_of(file))
    return OptionError(f"{file.path} has no column {name} ({option}){_columns(said, name, names)}")


def _columns(said: str, name: str, names: Sequence[str]) -> str:
    """What follows the complaint about a column that there is not: which is meant, and which there
    are.
    """
    near = None if name in names else nearest(name, names)
    meant = f"; did you mean {_quoted(near)}?" if near else ";"
    listed = ", ".join(map(_quoted, names)) or "none"
    return f"{meant} {said}: {listed}"


def _quoted(name: str) -> str:
    """A column's name in a list, in ASCII: in quotes if it has a comma, or blanks around it."""
    text = ascii(name)[1:-1]
    return f'"{text}"' if "," in name or name != name.strip() else text


def schema_of(file: InputFile) -> pa.Schema:
    """The columns of Parquet and of other tables."""
    return (
        footer_of(file).schema.to_arrow_schema() if file.format == "parquet" else table_schema(file)
    )


def trimmed_names(file: InputFile) -> tuple[str, ...]:
    """The names of columns of CSV or TSV around which blanks were left out, as the file has
    them.
    """
    return dialect_of(file).trimmed if file.format in SEPARATED else ()


def keys_of(rows: list[dict[str, Any]]) -> list[str]:
    """The keys of JSON rows, each once, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in all_keys(row)))


@functools.lru_cache(1)  # several questions about one file follow each other
def first_json_rows(file: InputFile) -> list[dict[str, Any]]:
    """The objects in the first block of a JSON or JSONL file; what else there is is left to be
    rejected.
    """
    if file.format == "json":
        return [row for row in next(read_json(file), []) if isinstance(row, dict)]
    return [
        row
        for _, line in next(read_lines(file, 0, None), [])
        if isinstance(row := _parsed(line), dict)
    ]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf8"))
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets
        return None


def _check_keys(file: InputFile, text: str | None, id_column: str | None) -> None:
    """Raise OptionError where none of the first rows has text or id, or none has a value there that
    can be used.
    """
    rows = first_json_rows(file)
    for option, name in (("--text-column", text), ("--id-column", id_column)):
        if rows and name is not None and not any(has_value(row, name) for row in rows):
            raise no_column(file, name, option)
    kinds = _kinds(rows, text) if text is not None else set()
    if kinds and "str" not in kinds:
        raise OptionError(
            f"{file.path}: column {text} is {_listed(kinds)} in the first rows, not string; name"
            " another --text-column"
        )
    kinds = _kinds(rows, id_column) if id_column is not None else set()
    if kinds and not kinds & {"str", "int"}:
        raise OptionError(
            f"{file.path}: column {id_column} is {_listed(kinds)} in the first rows; ids must be"
            " strings or integers (--id-column)"
        )


def _kinds(rows: list[dict[str, Any]], name: str) -> set[str]:
    """The types that a column has in rows where it is not null."""
    return {type(found).__name__ for row in rows if (found := value_at(row, name)) is not None}


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))
