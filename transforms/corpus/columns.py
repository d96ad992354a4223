"""The columns that options name, looked for in a file before any row of it is embedded."""

import functools
import json
from typing import Any

from transforms.corpus.files import InputFile
from transforms.corpus.lines import read_lines
from transforms.corpus.spans import check_columns
from transforms.errors import OptionError


def kept_types(file: InputFile, text: str, id_column: str | None, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Name and type of each kept column.

    Raises OptionError where the file lacks a named column or has it in a wrong type. A kept key of JSONL may come later
    in a file than its first rows, or never: see `keys_found`.
    """
    if file.format == "parquet":
        schema = check_columns(file, text, id_column, keep)
        return tuple((name, str(schema.field(name).type)) for name in keep)
    if file.format == "jsonl":
        _check_keys(file, text, id_column)
    elif set(keep) - {text} or id_column:
        option, name = ("--id-column", id_column) if id_column else ("--keep-columns", ",".join(keep))
        raise OptionError(f"{file.path} is plain text and has no column {name} ({option}); leave the option out")
    return tuple((name, "string") for name in keep)


def keys_found(file: InputFile, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Those of the names that the file has; in JSONL, as keys of its first rows. None where there are no such rows."""
    if file.format != "jsonl":
        return names
    rows = first_json_rows(file)
    return tuple(name for name in names if any(name in row for row in rows)) if rows else None


def no_column(file: InputFile, name: str, option: str) -> OptionError:
    """The error for a key that none of a file's first rows has."""
    found = ascii(", ".join(keys_of(first_json_rows(file))))[1:-1] or "none"
    return OptionError(f"{file.path} has no column {name} ({option}); keys of its first rows: {found}")


def keys_of(rows: list[dict[str, Any]]) -> list[str]:
    """The keys of JSON rows, each once, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in row))


@functools.lru_cache(1)  # several questions about one file follow each other
def first_json_rows(file: InputFile) -> list[dict[str, Any]]:
    """The objects in the first block of a JSONL file; other lines are left to be rejected."""
    return [row for _, line in next(read_lines(file, 0, None), []) if isinstance(row := _parsed(line), dict)]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf8"))
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets
        return None


def _check_keys(file: InputFile, text: str, id_column: str | None) -> None:
    """Raise OptionError where none of the first rows has text or id, or none has a value there that can be used."""
    rows = first_json_rows(file)
    for option, name in (("--text-column", text), ("--id-column", id_column)):
        if rows and name is not None and not any(name in row for row in rows):
            raise no_column(file, name, option)
    kinds = _kinds(rows, text)
    if kinds and "str" not in kinds:
        raise OptionError(
            f"{file.path}: column {text} is {_listed(kinds)} in the first rows, not string; name another --text-column"
        )
    kinds = _kinds(rows, id_column) if id_column is not None else set()
    if kinds and not kinds & {"str", "int"}:
        raise OptionError(
            f"{file.path}: column {id_column} is {_listed(kinds)} in the first rows; ids must be strings or integers "
            "(--id-column)"
        )


def _kinds(rows: list[dict[str, Any]], name: str) -> set[str]:
    """The types that a column has in rows where it is not null."""
    return {type(row[name]).__name__ for row in rows if row.get(name) is not None}


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))
