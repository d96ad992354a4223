"""Ids that a program gives, as the text that `embed` makes of a column of ids."""

import uuid
from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.column_checks import is_id
from sentence_beam.transforms.corpus.column_values import as_strings
from sentence_beam.transforms.corpus.files import is_utf8
from sentence_beam.transforms.corpus.row_columns import read_id

Id: TypeAlias = str | int | bytes | uuid.UUID


def is_one_id(value: Any) -> bool:
    """Return whether a program gave one id, and not several."""
    return isinstance(value, str | bytes | pa.Scalar) or not isinstance(value, Iterable)


def format_ids(ids: Id | Iterable[Id]) -> list[str]:
    """Return one or several ids as text.

    Raises OptionError for a value that cannot be an id, such as a number with a point.
    """
    several: Any = [ids] if is_one_id(ids) else ids
    return [each if isinstance(each, str) else _read_one(each) for each in several]


def _read_one(value: Any) -> str:
    text = None
    if not isinstance(value, pa.Scalar):
        text, _ = read_id(value)
    elif value.is_valid and is_id(value.type):
        text = as_strings(pa.repeat(value, 1))[0].as_py()
    if text is None or not is_utf8(text):
        raise OptionError(
            f"{value!r} ({type(value).__name__}) cannot be an id; ids are strings, whole numbers,"
            " UUIDs or bytes that are UTF-8"
        )
    return text
