"""Names of units in columns, against the functions that make and read one name."""

import pyarrow as pa
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.corpus import buckets, groups
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store.ledger import get_span_name
from sentence_beam.transforms.store.tables import names as store_names
from sentence_beam.transforms.store.tables.names import (
    STRETCHES,
    Owners,
    find_stretch,
    find_stretches,
    format_keys,
    get_spans,
    hash_files,
    list_buckets,
    parse_buckets,
    parse_unit_keys,
)

TRIED = settings(max_examples=examples(200), deadline=None)
paths = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12))
numbers = st.integers(0, 10**12 - 1)
of_files = st.builds("{:016x}-{:012d}".format, st.integers(0, 2**64 - 1), numbers)
of_buckets = st.integers(0, 32).flatmap(
    lambda bits: st.builds(
        lambda number: buckets.Buckets(bits, 1, 1, 1).name(number), st.integers(0, 2**bits - 1)
    )
)
of_groups = st.integers(0, 20).flatmap(
    lambda bits: st.builds(
        lambda number: f"f{bits}-{number:0{-(-bits // 4) or 1}x}", st.integers(0, 2**bits - 1)
    )
)
units = st.builds(
    lambda span, piece: span if piece is None else f"{span}.{piece}",
    of_files | of_buckets | of_groups,
    st.none() | st.integers(0, 1 << 20),
)
some_units = st.lists(units, max_size=20)


def array(values: list[str], start: int = 0) -> pa.StringArray:
    """Texts as the end of a longer array: offsets of a slice do not begin at 0."""
    return pa.array(["x" * place for place in range(start)] + values, pa.string()).slice(start)


@TRIED
@given(paths, st.integers(0, 3))
def test_keys_of_files_are_those_of_single_files(some: list[str], start: int) -> None:
    wanted = [make_key(path) for path in some]
    assert [f"{key:016x}" for key in hash_files(array(some, start)).tolist()] == wanted
    assert format_keys(array(some, start)).to_pylist() == wanted


def test_keys_are_made_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_names, "ROWS_AT_ONCE", 3)
    chunks = pa.chunked_array([["a", "b"], [], ["c", "d", "e"]], pa.string())
    assert format_keys(chunks).to_pylist() == [make_key(path) for path in "abcde"]


@TRIED
@given(some_units, st.integers(0, 3))
def test_the_key_in_a_name_is_that_of_its_file(some: list[str], start: int) -> None:
    keys, has_key = parse_unit_keys(array(some, start))
    wanted = [len(unit) > 16 and unit[16] == "-" for unit in some]
    assert has_key.tolist() == wanted
    found = [f"{key:016x}" for key, is_own in zip(keys.tolist(), wanted, strict=True) if is_own]
    assert found == [unit[:16] for unit, is_own in zip(some, wanted, strict=True) if is_own]


@TRIED
@given(some_units, st.integers(0, 3))
def test_spans_and_buckets_are_those_of_single_names(some: list[str], start: int) -> None:
    assert get_spans(array(some, start)).to_pylist() == [get_span_name(unit) for unit in some]
    bits, bucket, piece = parse_buckets(array(some, start))
    for unit, found in zip(some, zip(bits, bucket, piece, strict=True), strict=True):
        one = buckets.parse_name(unit)
        if one is None:
            assert found[0] == -1
            continue
        assert found == (one.bits, one.number, -1 if one.piece is None else one.piece)


@TRIED
@given(some_units)
def test_groups_are_no_buckets_and_of_no_file(some: list[str]) -> None:
    grouped = [unit for unit in some if groups.parse_bits(unit) is not None]
    assert not parse_unit_keys(array(grouped))[1].any()
    assert (parse_buckets(array(grouped))[0] == -1).all()


@TRIED
@given(st.lists(of_files | of_groups, min_size=2), st.integers(0, 3))
def test_stretches_follow_the_order_of_names(some: list[str], start: int) -> None:
    found = find_stretches(array(sorted(some), start)).tolist()
    assert found == sorted(found)
    assert {*found} <= {*range(STRETCHES)}
    assert found == [find_stretch(name) for name in sorted(some)]


@TRIED
@given(st.lists(units, max_size=9))
def test_a_unit_is_in_the_stretch_of_its_span(some: list[str]) -> None:
    spans = array([get_span_name(unit) for unit in some])
    assert find_stretches(array(some)).tolist() == find_stretches(spans).tolist()


@pytest.mark.parametrize("bits", range(9))
@pytest.mark.parametrize("step", [1, 3, 64])
def test_the_buckets_of_stretches_are_the_names_in_them(bits: int, step: int) -> None:
    named = array([buckets.Buckets(bits, 1, 1, 1).name(number) for number in range(1 << bits)])
    stretches = find_stretches(named).tolist()
    for first in range(0, STRETCHES, step):
        after = min(first + step, STRETCHES)
        wanted = [number for number, at in enumerate(stretches) if first <= at < after]
        assert [*list_buckets(first, after, bits)] == wanted


class TestOwners:
    PATHS = ("a", "b", "c", "d", "e")

    def of(self, groups: list[str | None], *names: str) -> list[int]:
        owners = Owners(array([*self.PATHS]), pa.array(groups, pa.string()))
        return owners.of(array([*names], 2)).tolist()

    def test_units_are_of_the_file_with_their_key(self) -> None:
        names = [f"{make_key(path)}-{7:012d}.3" for path in ("e", "a", "x", "c")]
        assert self.of([None] * 5, *names, "f0-0", "3-5") == [4, 0, -1, 2, -1, -1]

    def test_units_of_a_group_are_of_its_first_file(self) -> None:
        groups = [None, "f1-1", "f1-0", "f1-1", "f1-0"]
        found = self.of(groups, "f1-1", "f1-0.2", "f1-00", "f1-", "f0-1")
        assert found == [1, 2, -1, -1, -1]

    def test_a_file_of_a_group_has_no_units_of_its_own(self) -> None:
        names = [f"{make_key(path)}-{0:012d}" for path in self.PATHS]
        assert self.of([None, "f0-0", None, "f0-0", None], *names) == [0, -1, 2, -1, 4]

    def test_without_files_no_unit_is_of_any(self) -> None:
        nothing = pa.array([], pa.string())
        names = array([f"{make_key('a')}-{0:012d}", "f0-0"])
        assert Owners(nothing, nothing).of(names).tolist() == [-1, -1]
        assert Owners(array([*self.PATHS]), pa.nulls(5, pa.string())).of(nothing).tolist() == []
