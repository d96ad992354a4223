"""Files that a command writes because its user names them."""

import contextlib
import csv
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.plain_values import to_json_value, to_python_rows

TABLES = (".parquet", ".csv", ".json", ".jsonl")
ROWS_AT_ONCE = 10_000


def check_output(path: str | None, suffixes: tuple[str, ...] = TABLES) -> None:
    """Raise OptionError for another suffix, and for a missing folder, before anything is loaded."""
    if path is None:
        return
    if os.path.isdir(path):
        raise OptionError(
            f"{cite('output')} {path} is a folder; name a file, which must end in"
            f" {_join_words(suffixes)}"
        )
    if not path.endswith(suffixes):
        raise OptionError(f"{cite('output')} {path}: the name must end in {_join_words(suffixes)}")
    check_file(path)


def check_file(path: str, flag: str = cite("output")) -> None:
    """Raise OptionError if the path is a folder, or its folder is missing or not writable."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise OptionError(f"{flag} {path} is a folder; name a file")
    if not os.path.isdir(folder):
        raise OptionError(f"{flag} {path}: there is no such folder; make it")
    if not os.access(folder, os.W_OK):
        raise OptionError(f"{flag} {path}: the folder cannot be written; choose another")


def _join_words(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def write_rows(path: str, rows: list[dict[str, Any]]) -> None:
    """Write rows by the name's suffix: Parquet, CSV with a header, a JSON array, or JSON lines."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.endswith(".parquet"):
        write_table(path, pa.table({name: [row.get(name) for row in rows] for name in names}))
    else:
        _write_dicts(path, names, rows)


def write_table(path: str, table: pa.Table) -> None:
    """Write a table by the name's suffix, as `write_rows` does."""
    write_tables(path, table.schema, [table])


def write_tables(path: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write tables as one file by the name's suffix, which gets its name when it is whole."""
    if path.endswith(".parquet"):
        with (
            _naming_when_whole(path) as temporary,
            pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
        ):
            for table in tables:
                writer.write_table(table)
        return
    batches = (batch for table in tables for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE))
    _write_dicts(path, schema.names, (row for batch in batches for row in to_python_rows(batch)))


def _write_dicts(path: str, names: list[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as CSV with a header of all columns, as a JSON array or as JSON lines."""
    with (
        _naming_when_whole(path) as temporary,
        open(temporary, "w", encoding="utf8", newline="") as file,
    ):
        if path.endswith(".csv"):
            _write_csv(file, names, rows)
        elif path.endswith(".json"):
            _write_array(file, rows)
        else:
            file.writelines(f"{_as_json(row)}\n" for row in rows)


def _write_csv(file: TextIO, names: list[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write CSV; values that CSV cannot represent are JSON."""
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _to_csv_value(value) for name, value in row.items()})


def _to_csv_value(value: Any) -> Any:
    return _as_json(value) if isinstance(value, list | dict) else value


def _write_array(file: TextIO, rows: Iterable[dict[str, Any]]) -> None:
    before = "[\n "
    for row in rows:
        file.write(before + _as_json(row, indent=1).replace("\n", "\n "))
        before = ",\n "
    file.write("[]\n" if before.startswith("[") else "\n]\n")


def _as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False, indent=indent)


def write_text(path: str, text: str) -> None:
    """Write a file and rename it when it is whole, so that readers see the old one until then."""
    with (
        _naming_when_whole(path) as temporary,
        open(temporary, "w", encoding="utf8", newline="") as f,
    ):
        f.write(text)


@contextlib.contextmanager
def _naming_when_whole(path: str) -> Iterator[str]:
    """Yield the name of a file that becomes `path` when the block ends, and is removed if it fails.

    Raises OptionError if it cannot be written.
    """
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise OptionError(
            f"{cite('output')} {path} cannot be written ({error.strerror or error}); choose another"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
