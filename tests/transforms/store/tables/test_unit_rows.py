"""Units in which two snapshots differ, as a multiset of shards."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.examples import examples
from helpers.snapshots import small_parts, watch_parts
from helpers.unit_records import unit_record
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.tables.table_columns import make_units_table
from sentence_beam.transforms.store.tables.table_parts import write_table
from sentence_beam.transforms.store.tables.unit_rows import find_differing, find_differing_parts


def units(digits: str) -> pa.Table:
    """A unit for each digit of sha256; "-" has no shard."""
    records = []
    for place, digit in enumerate(digits):
        name = f"{make_key(str(place))}-{0:012d}"
        shard = {"path": layout.shard(name, "0" * 16), "sha256": digit * 64}
        records.append(unit_record(1, unit=name, **({} if digit == "-" else shard)))
    return make_units_table(records)


def digits(some: pa.Table) -> Counter[str]:
    return Counter(sha256.hex()[0] for sha256 in some["sha256"].to_pylist())


@settings(max_examples=examples(200), deadline=None)
@given(st.text("abcd-", max_size=9), st.text("abcd-", max_size=9))
def test_each_side_has_the_shards_that_the_other_lacks(old: str, new: str) -> None:
    first, second = find_differing(units(old), units(new))
    here, there = (Counter(text.replace("-", "")) for text in (old, new))
    assert (digits(first), digits(second)) == (here - there, there - here)
    for found, text in ((first, old), (second, new)):
        assert {*found["unit"].to_pylist()} <= {*units(text)["unit"].to_pylist()}


def test_of_equal_units_the_first_are_those_that_both_have() -> None:
    some = units("aaa")
    first, second = find_differing(some, units("a"))
    assert first["unit"].to_pylist() == some["unit"].to_pylist()[1:]
    assert len(second) == 0


def test_parts_that_both_tables_have_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    root = str(tmp_path)
    old = write_table(root, "units", units("a" * 40), TableEntry())
    new = write_table(root, "units", units("a" * 20 + "b" + "a" * 19), old)
    read = watch_parts(monkeypatch)
    first, second = find_differing_parts(root, old, new)
    assert (digits(first), digits(second)) == (Counter("a"), Counter("b"))
    assert len(read) == 2 < len(old.parts)
    read.clear()
    assert [len(side) for side in find_differing_parts(root, new, new)] == [0, 0]
    assert read == []
