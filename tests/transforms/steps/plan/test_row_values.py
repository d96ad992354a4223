"""Rows of other people's pipelines as columns of text, and the reasons against them."""

import datetime as dt
import uuid
from collections import namedtuple
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.column_values import KEPT_NOT_UTF8, NOT_UTF8
from sentence_beam.transforms.corpus.row_blocks import (
    ID_NOT_STRING,
    NULL_ID,
    NULL_TEXT,
    TEXT_NOT_STRING,
)
from sentence_beam.transforms.corpus.row_columns import as_plain_value
from sentence_beam.transforms.steps.plan.row_values import AGAINST, make_batch, read_fields

COLUMNS = Columns("text", "id", ("lang",))
LONE = "\ud800"  # half of a pair, which UTF-8 does not have
Named = namedtuple("Named", ["id", "text"])


def batch(*rows: dict[str, Any]) -> dict[str, list[str | None]]:
    """The columns of rows."""
    found: dict[str, list[str | None]] = make_batch(list(rows), COLUMNS).to_pydict()
    return found


@pytest.mark.parametrize(
    "given", [{"id": 1, "text": "x"}, Named(1, "x"), (1, "x")], ids=["dict", "named row", "pair"]
)
def test_elements_that_are_rows(given: Any) -> None:
    assert read_fields(given, COLUMNS) == {"id": 1, "text": "x"}


@pytest.mark.parametrize("given", ["text", 1, (1, "x", "y"), None])
def test_elements_that_are_no_rows_are_refused(given: Any) -> None:
    with pytest.raises(OptionError):
        read_fields(given, COLUMNS)


@pytest.mark.parametrize(
    ("value", "row_id", "reason"),
    [
        ("a", "a", None),
        (7, "7", None),
        (np.int64(7), "7", None),
        (uuid.UUID(int=1), str(uuid.UUID(int=1)), None),
        (b"a", "a", None),
        (b"\xff", "?", NOT_UTF8),
        (Decimal(7), "7", None),
        (Decimal("7.5"), None, ID_NOT_STRING),
        (None, None, NULL_ID),
        (True, None, ID_NOT_STRING),
        (1.5, None, ID_NOT_STRING),
        (LONE, "?", NOT_UTF8),
    ],
)
def test_ids(value: Any, row_id: str | None, reason: str | None) -> None:
    found = batch({"id": value, "text": "x"})
    assert (found["id"], found[AGAINST]) == ([row_id], [reason])


@pytest.mark.parametrize(
    ("row", "text", "reason"),
    [
        ({"text": "x"}, "x", None),
        ({"text": None}, None, NULL_TEXT),
        ({"text": 1}, None, TEXT_NOT_STRING),
        ({"text": LONE}, "?", NOT_UTF8),
    ],
)
def test_texts(row: dict[str, Any], text: str | None, reason: str | None) -> None:
    found = batch({"id": "a", **row})
    assert (found["text"], found[AGAINST]) == ([text], [reason])


def test_kept_values_are_text_and_what_utf8_lacks_is_rejected() -> None:
    rows = [{"id": str(n), "text": "x"} for n in range(4)]
    values = [{"a": [1]}, None, LONE, dt.date(2026, 1, 2)]
    found = batch(*({**row, "lang": value} for row, value in zip(rows, values, strict=True)))
    assert found["lang"] == ['{"a":[1]}', None, "?", "2026-01-02"]
    assert found[AGAINST] == [None, None, KEPT_NOT_UTF8, None]
    found = batch(
        {"id": b"a", "text": b"x", "lang": b"x"}, {"id": "b", "text": "x", "lang": b"\xff"}
    )
    assert (found["id"], found["text"], found["lang"]) == (["a", "b"], ["x", "x"], ["x", "?"])
    assert found[AGAINST] == [None, KEPT_NOT_UTF8]


def test_the_first_reason_counts() -> None:
    assert batch({"id": None, "text": None, "lang": LONE})[AGAINST] == [NULL_TEXT]


def test_values_of_libraries_become_pythons_own() -> None:
    class Time:
        def to_utc_datetime(self, has_tz: bool) -> dt.datetime:
            return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    values = [np.float32(0.5), Named(1, "x"), Time(), "x", None, [1]]
    assert [as_plain_value(value) for value in values] == [
        0.5,
        {"id": 1, "text": "x"},
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "x",
        None,
        [1],
    ]
