"""Ids that a program gives become the text that a column of them becomes."""

import decimal
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.batch_rows import as_strings
from sentence_beam.transforms.corpus.given_ids import format_ids

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.one_of(INTEGERS, st.text(), st.uuids()), max_size=5))
def test_as_a_column_of_ids(ids: list[Any]) -> None:
    expected = [as_strings(pa.array([each]))[0].as_py() for each in ids]
    assert format_ids(ids) == expected
    assert [format_ids(each) for each in ids] == [[text] for text in expected]


@given(INTEGERS)
def test_integers_of_every_library(number: int) -> None:
    others = [np.int64(number), pa.scalar(number), np.array([number]), pa.array([number])]
    assert [format_ids(each) for each in others] == [[str(number)]] * len(others)


def test_uuids_and_bytes() -> None:
    one = uuid.UUID("12345678-1234-5678-1234-567812345678")
    fixed = pa.scalar(b"\x01\xff", pa.binary(2))
    assert format_ids([one, b"ab", fixed, np.uint64(2**63), decimal.Decimal(7), 2**70]) == [
        "12345678-1234-5678-1234-567812345678",
        "ab",
        "01ff",
        "9223372036854775808",
        "7",
        "1180591620717411303424",
    ]


@pytest.mark.parametrize(
    "value", [7.0, True, None, decimal.Decimal("7.5"), [7], {"id": 7}, b"\x01\xff", object()]
)
def test_what_cannot_be_an_id_is_named(value: Any) -> None:
    with pytest.raises(OptionError, match="cannot be an id; ids are strings, whole numbers"):
        format_ids([value])
