"""Rows with several columns, and files of them in every format, with the ids that rows without an
id column have.
"""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq

from sentence_beam.transforms.corpus.syntax import Syntax


@dataclass(frozen=True)
class InputRow:
    """A row of an input file; every column holds strings."""

    id: str | None
    text: str | None
    title: str | None
    lang: str
    price: str


COLUMNS = tuple(field.name for field in fields(InputRow))
# of layouts that are not named by their ending
SUFFIXES = {"small": ".jsonl", "jsonl.gz": ".jsonl.gz"}
DELIMITERS = {"csv": ",", "tsv": "\t"}
FORMATS = {"small": "jsonl", "jsonl.gz": "jsonl"}


def suffix_of(layout: str) -> str:
    """The ending of a layout's files."""
    return SUFFIXES.get(layout, f".{layout}")


def write_file(path: Path, rows: Sequence[InputRow], syntax: Syntax) -> None:
    """Write rows in the format of the name's ending; CSV, TSV and JSON with a syntax."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    if ending in ("parquet", "arrow", "orc"):
        columns = zip(*map(astuple, rows), strict=True) if rows else [()] * len(COLUMNS)
        _write_table(
            path,
            ending,
            pa.table([pa.array(column, pa.string()) for column in columns], names=COLUMNS),
        )
    elif ending in ("csv", "tsv"):
        above = "".join(f"line {number} above\n" for number in range(syntax.csv.skip))
        path.write_text(above + _as_csv(rows, syntax.delimiter or DELIMITERS[ending]))
    elif ending == "json":
        value: Any = [vars(row) for row in rows]
        for key in reversed((syntax.json_rows or "").split(".")):
            value = {"n": 1, key: value} if key else value
        path.write_text(json.dumps(value))
    else:
        data = "".join(_lines(rows)).encode()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def made_ids(name: str, rows: Sequence[InputRow]) -> list[str]:
    """The ids of a file's rows where no column has them: of JSONL by the line's byte, else by the
    row's number.
    """
    if ".jsonl" not in name:
        return [f"{name}#{number}" for number in range(len(rows))]
    starts = accumulate((len(line.encode()) for line in _lines(rows)), initial=0)
    return [f"{name}@{start}" for start, _ in zip(starts, rows, strict=False)]


def _write_table(path: Path, ending: str, table: pa.Table) -> None:
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=3)
    elif ending == "arrow":
        pyarrow.feather.write_feather(table, str(path))
    else:
        pyarrow.orc.write_table(table, str(path))


def _as_csv(rows: Sequence[InputRow], delimiter: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([COLUMNS, *(astuple(row) for row in rows)])
    return text.getvalue()


def _lines(rows: Sequence[InputRow]) -> list[str]:
    return [json.dumps(vars(row)) + "\n" for row in rows]
