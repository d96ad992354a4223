"""JSON files: an array of objects, or objects one after the other."""

import functools
from collections.abc import Iterator
from typing import Any

from transforms.corpus.files import InputFile
from transforms.corpus.formats.format import until_stop
from transforms.corpus.formats.json_objects import JsonFormat, read_object, text_bytes
from transforms.corpus.json_places import find_json_places
from transforms.corpus.json_values import FirstValues, read_first, read_json
from transforms.corpus.parsed_rows import gather_rows, make_id, measure_texts
from transforms.corpus.places import spans_between
from transforms.corpus.row_blocks import NOT_JSON, Block, Columns
from transforms.corpus.spans import MOST, Span, bytes_of_span


class JsonArray(JsonFormat):
    """Values of JSON; objects are rows. A file is cut between values, by bytes."""

    name = "json"
    endings = (".json",)

    def choose_cut(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> int:
        """Return the bytes of values that hold a unit's text, by the first of them."""
        if file.compression:
            return 0
        first = _first_values(file)
        return bytes_of_span(
            first.size, text_bytes(_objects(first), text), len(first.values), unit_tokens
        )

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        cut = file.cut or 0
        if not cut or file.size <= MOST * cut:
            return super().spans(file, text, unit_tokens)
        places = find_json_places(file, cut)
        if places is None or len(places.begins) == 1:
            return super().spans(file, text, unit_tokens)
        return list(spans_between(file, places, unit_tokens))

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        return until_stop(span, _blocks(span, columns))

    def row_counts(self, file: InputFile) -> Iterator[int]:
        return map(len, read_json(file))

    def first_rows(self, file: InputFile) -> list[dict[str, Any]]:
        return _objects(_first_values(file))

    def objects(self, file: InputFile) -> Iterator[dict[str, Any] | str]:
        for block in read_json(file):
            for value in block:
                yield value if isinstance(value, dict) else NOT_JSON


def _blocks(span: Span, columns: Columns) -> Iterator[Block]:
    file = span.file
    position = span.start
    for values in read_json(file, span.offset, span.rows):
        rows = []
        for number, value in enumerate(values, position):
            rows.append(read_object(columns, value, make_id(file, columns, number)))
        yield gather_rows(columns, range(position, position + len(rows)), rows), measure_texts(rows)
        position += len(values)


@functools.lru_cache(1)  # one file is checked several times in a row
def _first_values(file: InputFile) -> FirstValues:
    return read_first(file)


def _objects(first: FirstValues) -> list[dict[str, Any]]:
    return [value for value in first.values if isinstance(value, dict)]


FORMATS = (JsonArray(),)
