"""A made-up input format: cards of `name: value` lines, with an empty line after each card."""

from collections.abc import Iterator

import pyarrow as pa

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.table_formats import (
    ROWS,
    TableFormat,
    cut_batches,
    opening,
)


class Cards(TableFormat):
    """Cards, whose columns are the names on the first one."""

    name = "cards"
    endings = (".cards",)

    def read_schema(self, file: InputFile) -> pa.Schema:
        return pa.schema([(name, pa.string()) for name in next(_cards(file), {})])

    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(name, pa.string()) for name in names])
        rows = [{name: card[name] for name in names} for card in _cards(file)]
        return cut_batches(iter([pa.RecordBatch.from_pylist(rows, schema)]))


def _cards(file: InputFile) -> Iterator[dict[str, str]]:
    with opening(file, "Cards") as raw:
        for card in raw.read().decode().split("\n\n"):
            if card.strip():
                yield dict(line.split(": ", 1) for line in card.strip().split("\n"))


def write_cards(rows: list[dict[str, str]]) -> str:
    """The cards of some rows."""
    assert len(rows) <= ROWS
    return "".join(
        "".join(f"{name}: {value}\n" for name, value in row.items()) + "\n" for row in rows
    )
