"""Tables, as a command prints them or writes them into a file that its user names."""

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.errors import OptionError


def check_output(path: str | None, suffixes: tuple[str, ...] = (".parquet", ".jsonl")) -> None:
    """Raise OptionError for a name with another suffix, and for one in no folder, before anything is loaded."""
    if path is None:
        return
    if not path.endswith(suffixes):
        raise OptionError(f"--output {path}: the name must end in {' or '.join(suffixes)}")
    check_file(path)


def check_file(path: str, flag: str = "--output") -> None:
    """Raise OptionError for a file that is a folder, or in no folder."""
    if os.path.isdir(path):
        raise OptionError(f"{flag} {path} is a folder; name a file")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise OptionError(f"{flag} {path}: there is no such folder; make it")


def write_rows(path: str, rows: list[dict[str, Any]]) -> None:
    """Write rows as Parquet or JSON lines, by the name's suffix."""
    if path.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


def write_tables(path: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write tables as one Parquet file, which gets its name when it is whole."""
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_text(path: str, text: str) -> None:
    """Write a file, which gets its name when it is whole: whoever reads it meanwhile sees the one before."""
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with open(temporary, "w", encoding="utf8") as f:
            f.write(text)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def aligned(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: frozenset[str] = frozenset()) -> list[str]:
    """The lines of a table whose columns are as wide as their cells; those with a head in `right` are flush right."""
    columns = [[head, *(row[i] for row in rows)] for i, head in enumerate(heads)]
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if head in right else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def excerpt(text: object) -> str:
    """A text on one line, cut to 80 characters; empty for None."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= 80 else line[:79] + "…"
