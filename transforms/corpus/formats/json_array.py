"""JSON files: an array of objects, or objects one after the other."""

import functools
from collections.abc import Iterator
from typing import Any

from transforms.corpus.files import InputFile
from transforms.corpus.formats.format import until_stop
from transforms.corpus.formats.json_objects import JsonFormat, read_object
from transforms.corpus.json_values import read_json
from transforms.corpus.parsed_rows import gather_rows, make_id, measure_texts
from transforms.corpus.row_blocks import NOT_JSON, Block, Columns
from transforms.corpus.spans import Span


class JsonArray(JsonFormat):
    """Values of JSON; objects are rows."""

    name = "json"
    endings = (".json",)

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        return until_stop(span, _blocks(span.file, columns))

    def row_counts(self, file: InputFile) -> Iterator[int]:
        return map(len, read_json(file))

    def first_rows(self, file: InputFile) -> list[dict[str, Any]]:
        return _first_rows(file)

    def objects(self, file: InputFile) -> Iterator[dict[str, Any] | str]:
        for block in read_json(file):
            for value in block:
                yield value if isinstance(value, dict) else NOT_JSON


def _blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    position = 0
    for values in read_json(file):
        rows = []
        for number, value in enumerate(values, position):
            rows.append(read_object(columns, value, make_id(file, columns, number)))
        yield gather_rows(columns, range(position, position + len(rows)), rows), measure_texts(rows)
        position += len(values)


@functools.lru_cache(1)  # one file is checked several times in a row
def _first_rows(file: InputFile) -> list[dict[str, Any]]:
    return [row for row in next(read_json(file), []) if isinstance(row, dict)]


FORMATS = (JsonArray(),)
