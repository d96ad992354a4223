"""JSON files: an array of objects, objects one after the other, or an array inside of an object."""

import functools
from collections.abc import Iterator
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.format import cut_at_stop
from sentence_beam.transforms.corpus.formats.json_objects import JsonFormat, read_object
from sentence_beam.transforms.corpus.formats.json_values import read_json
from sentence_beam.transforms.corpus.parsed_rows import gather_rows, make_id, measure_texts
from sentence_beam.transforms.corpus.row_blocks import NOT_JSON, Block, Columns
from sentence_beam.transforms.corpus.spans import Span


class JsonArray(JsonFormat):
    """Values of JSON; objects are rows. One worker reads a file."""

    name = "json"
    endings = (".json",)

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        return cut_at_stop(span, _read_blocks(span, columns))

    def count_block_rows(self, file: InputFile) -> Iterator[int]:
        return map(len, read_json(file))

    def first_rows(self, file: InputFile) -> list[dict[str, Any]]:
        return [value for value in _read_first_values(file) if isinstance(value, dict)]

    def make_missing_error(self, error: OptionError, file: InputFile) -> OptionError:
        array = next(_find_arrays(self.first_rows(file)[:1], ""), None)
        if array is None:
            return error
        return OptionError(
            f"{error.message}; say {cite('json_rows')} {array} if this array has the rows"
        )

    def objects(self, file: InputFile) -> Iterator[dict[str, Any] | str]:
        for block in read_json(file):
            for value in block:
                yield value if isinstance(value, dict) else NOT_JSON


def _read_blocks(span: Span, columns: Columns) -> Iterator[Block]:
    file = span.file
    position = span.start
    for values in read_json(file):
        rows = []
        for number, value in enumerate(values, position):
            rows.append(read_object(columns, value, make_id(file, columns, number)))
        yield gather_rows(columns, range(position, position + len(rows)), rows), measure_texts(rows)
        position += len(values)


def _find_arrays(values: Any, above: str) -> Iterator[str]:
    """Yield the names of arrays of objects inside of objects."""
    for value in values:
        for key, inner in value.items():
            name = f"{above}{key}"
            if isinstance(inner, list) and any(isinstance(item, dict) for item in inner):
                yield name
            elif isinstance(inner, dict):
                yield from _find_arrays([inner], f"{name}.")


@functools.lru_cache(1)  # one file is checked several times in a row
def _read_first_values(file: InputFile) -> list[Any]:
    return next(read_json(file), [])


FORMATS = (JsonArray(),)
