"""Columns that a file's path has instead of the file, as Hive writes them: `lang=en/a.parquet`.

Names and values are URL-encoded. They are those of all folders above the file.
"""

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import unquote

import pyarrow as pa

NULLS = ("", "__HIVE_DEFAULT_PARTITION__")


@functools.lru_cache(64)
def parse_path_values(path: str) -> Mapping[str, str | None]:
    """Return the values in a file's path by column; the deepest folder with a name wins.

    >>> dict(path_values("s3://b/lang=en/day=2026-01-02%2003%3A00/tag=/a.parquet"))
    {'lang': 'en', 'day': '2026-01-02 03:00', 'tag': None}
    """
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if not (name and sign):
            continue
        text = _decode(value)
        values[_decode(name)] = None if text in NULLS else text
    return MappingProxyType(values)


def _decode(text: str) -> str:
    """Return a URL-encoded text, unchanged if it decodes to bytes that are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def choose_values(path: str, names: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Return those of the named columns that a path has, each with its value."""
    values = parse_path_values(path)
    return tuple((name, values[name]) for name in names if name in values)


def add_path_values(batch: pa.RecordBatch, values: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return a batch with the columns that it lacks from its file's path."""
    names = list(batch.schema.names)
    columns = list(batch.columns)
    for name, value in values.items():
        if name not in batch.schema.names:
            names.append(name)
            columns.append(pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
    return batch if len(names) == batch.num_columns else pa.RecordBatch.from_arrays(columns, names)
