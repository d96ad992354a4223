"""Elements of a plan: how many files and spans each has, and where its range of keys begins."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.steps.plan.elements import (
    FILES_PER_ELEMENT,
    SPANS_FOR_ONE_PROCESS,
    SPANS_PER_ELEMENT,
    by_key_ranges,
    in_batches,
    spans_per_element,
)

SLOTS = 2  # so that eight elements are wanted


def made_up(count: int) -> list[InputFile]:
    """Files sorted by their keys."""
    files = [InputFile(f"/in/{n}", f"{n}", "", "", 1, "", "") for n in range(count)]
    return sorted(files, key=lambda file: file.key)


def test_each_slot_has_four_elements_unless_files_are_very_many() -> None:
    assert [len(batch) for batch in in_batches(list(range(80)), SLOTS)] == [10] * 8
    assert [len(batch) for batch in in_batches(list(range(3)), SLOTS)] == [1] * 3
    many = list(in_batches(list(range(100 * FILES_PER_ELEMENT)), SLOTS))
    assert {len(batch) for batch in many} == {FILES_PER_ELEMENT}


def test_spans_of_an_element() -> None:
    assert spans_per_element(10_000, 1) == SPANS_FOR_ONE_PROCESS
    assert spans_per_element(10_000, SLOTS) == SPANS_PER_ELEMENT
    assert spans_per_element(24, SLOTS) == 3
    assert spans_per_element(1, None) == 1


def test_batches_begin_where_parts_of_the_manifest_do() -> None:
    files = made_up(80)
    starts = [files[place].key for place in (0, 20, 45)]
    found = list(by_key_ranges(files, SLOTS, starts))
    assert [len(listed.files) for listed in found] == [10, 10, 12, 13, 8, 9, 9, 9]
    assert set(starts[1:]) <= {listed.keys.low for listed in found}


def test_short_parts_are_in_a_batch_together() -> None:
    files = made_up(80)
    found = list(by_key_ranges(files, SLOTS, [file.key for file in files]))
    assert [len(listed.files) for listed in found] == [10] * 8


@given(
    count=st.integers(0, 60),
    places=st.lists(st.integers(0, 59), max_size=6),
    slots=st.integers(1, 8),
)
def test_ranges_are_all_keys_and_have_every_file_once(
    count: int, places: list[int], slots: int
) -> None:
    files = made_up(count)
    starts = sorted({files[place].key for place in places if place < count})
    found = list(by_key_ranges(reversed(files), slots, starts))
    assert [file for listed in found for file in listed.files] == files
    for listed in found:
        assert all(listed.keys.has(file.key) for file in listed.files)
    if found:
        assert found[0].keys.low == found[-1].keys.high == ""
    for one, following in pairwise(found):
        assert one.keys.high == following.keys.low


def test_a_file_that_is_listed_twice_is_in_the_range_of_each() -> None:
    files = [file for file in made_up(4) for _ in range(2)]
    for listed in by_key_ranges(files, SLOTS):
        assert all(listed.keys.has(file.key) for file in listed.files)
