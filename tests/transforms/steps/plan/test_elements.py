"""Elements of a plan: how many files and spans each has."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.steps.plan.elements import (
    FILES_PER_ELEMENT,
    SPANS_FOR_ONE_PROCESS,
    SPANS_PER_ELEMENT,
    PlannedFiles,
    count_files_per_element,
    count_spans_per_element,
    pack_batches,
)

SLOTS = 2  # so that eight elements are wanted


def test_each_slot_has_four_elements_unless_files_are_very_many() -> None:
    assert count_files_per_element(80, SLOTS) == 10
    assert count_files_per_element(3, SLOTS) == 1
    assert count_files_per_element(100 * FILES_PER_ELEMENT, SLOTS) == FILES_PER_ELEMENT


@given(st.lists(st.text(max_size=3), max_size=40), st.integers(1, 9))
def test_rows_travel_in_batches_and_none_is_lost(names: list[str], size: int) -> None:
    table = pa.table({"path": pa.array(names, pa.string())})
    found = [PlannedFiles(data).table for data in pack_batches(table, size)]
    assert [len(rows) for rows in found[:-1]] == [size] * (len(found) - 1)
    assert [name for rows in found for name in rows.column("path").to_pylist()] == names


def test_spans_of_an_element() -> None:
    assert count_spans_per_element(10_000, 1) == SPANS_FOR_ONE_PROCESS
    assert count_spans_per_element(10_000, SLOTS) == SPANS_PER_ELEMENT
    assert count_spans_per_element(24, SLOTS) == 3
    assert count_spans_per_element(1, None) == 1
