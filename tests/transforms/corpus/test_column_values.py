"""Values of columns as text: ids of every type, strings that are no UTF-8, values that Parquet
cannot hold.
"""

import uuid

import pyarrow as pa
import pytest

from sentence_beam.transforms.corpus.column_values import (
    EXCERPT,
    KEPT_NOT_UTF8,
    KEPT_NULL_LIST,
    NOT_UTF8,
    as_strings,
    decode,
    decode_texts,
    find_kept_faults,
    format_values,
    merge_reasons,
    read_named_values,
)

ID = uuid.UUID(int=2**127 + 10)


def broken(*values: bytes | None) -> pa.Array:
    """Strings of which some are not UTF-8."""
    return pa.array(values, pa.large_binary()).view(pa.large_string())


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (pa.array([1, None, -(2**63)]), ["1", None, str(-(2**63))]),
        (pa.array([b"\x00\xff", None], pa.binary(2)), ["00ff", None]),
        (pa.array(["a", None]), ["a", None]),
        (
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16))),
            [str(ID), None],
        ),
    ],
    ids=["integers", "bytes of a fixed number", "text", "UUIDs"],
)
def test_ids_as_text(ids: pa.Array, texts: list[str | None]) -> None:
    assert as_strings(ids).to_pylist() == texts


def test_strings_that_are_not_utf8_have_an_excerpt_and_a_reason() -> None:
    found, reasons = decode_texts(broken(b"good", b"bad \xff", None))
    assert found == ["good", "bad \ufffd", None]
    assert reasons == [None, NOT_UTF8, None]
    assert decode_texts(pa.array(["a", None])) == (["a", None], None)


def test_the_excerpt_is_bounded() -> None:
    text, reason = decode(b"\xff" * 10_000)
    assert (len(text), reason) == (4 * EXCERPT, NOT_UTF8)


def test_lists_and_structs_are_json_and_broken_ones_have_a_reason() -> None:
    values, reasons = format_values(pa.array([[1, 2], None, []]))
    assert (values, reasons) == (["[1,2]", None, "[]"], None)
    lists = pa.LargeListArray.from_arrays([0, 1, 2], broken(b"ok", b"\xff"))
    assert format_values(lists) == (['["ok"]', None], [None, NOT_UTF8])


def test_kept_values_that_readers_could_not_decode() -> None:
    assert find_kept_faults(pa.array(["a", None])) is None
    assert find_kept_faults(broken(b"ok", b"\xff")) == [None, KEPT_NOT_UTF8]
    pairs = pa.array([[1, 2], None], pa.list_(pa.int64(), 2))
    assert find_kept_faults(pairs) == [None, KEPT_NULL_LIST]
    assert find_kept_faults(pairs[:1]) is None


def test_the_first_reason_against_a_row_counts() -> None:
    assert merge_reasons(None, None) is None
    assert merge_reasons(None, ["a", None]) == ["a", None]
    assert merge_reasons(["a", None, None], ["b", "c", None]) == ["a", "c", None]


def test_named_values_are_those_of_columns_that_exist() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, 2]), "b": broken(b"x", b"\xff")})
    values, reasons = read_named_values(batch, ("a", "b", "none"))
    assert values == [{"a": "1", "b": "x"}, {"a": "2", "b": "\ufffd"}]
    assert reasons == [None, NOT_UTF8]
