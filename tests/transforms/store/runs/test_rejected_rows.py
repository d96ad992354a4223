"""Rejected rows of runs, on made-up stores: the counts by reason, and whose list is shown."""

from pathlib import Path

import pytest
from helpers.snapshots import night, numbered, run_name

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Rejected
from sentence_beam.transforms.corpus.row_blocks import BLANK_LINE, NULL_TEXT
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs.recorded_plan import PLAN, PlanNotes, RecordedPlan
from sentence_beam.transforms.store.runs.rejected_rows import (
    count_reasons,
    find_rejecting_run,
    read_rejected_rows,
    record_rejected,
)
from sentence_beam.transforms.store.shards.reject_files import pack_rejects

LISTED = layout.rejects("0123456789abcdef-000000000000", "0" * 16)
OTHER = layout.rejects("0123456789abcdef-000000000000", "1" * 16)
NO_PLAN = RecordedPlan("plan.parquet", PLAN.empty_table(), PlanNotes())


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The folder of a store."""
    (tmp_path / "rejects").mkdir()
    return str(tmp_path)


def write(root: str, name: str, *found: str) -> str:
    """Write a reject file of rows with these reasons."""
    rows = [Rejected(f"{name}#{row}", row, reason, "", name) for row, reason in enumerate(found)]
    path = f"rejects/{name}.parquet"
    (Path(root) / path).write_bytes(pack_rejects(rows))
    return path


def test_rows_come_file_by_file(root: str) -> None:
    paths = [write(root, "b", "x", "y"), write(root, "a", "z")]
    assert [row.id for row in read_rejected_rows(root, paths)] == ["b#0", "b#1", "a#0"]


@pytest.mark.parametrize("damage", [b"", None])
def test_a_file_that_is_damaged_or_missing_is_named(root: str, damage: bytes | None) -> None:
    path = write(root, "a", "x")
    (Path(root) / path).unlink()
    if damage is not None:
        (Path(root) / path).write_bytes(damage)
    with pytest.raises(SentenceBeamError, match="rejects/a.parquet is missing or damaged"):
        list(read_rejected_rows(root, [path]))
    assert count_reasons(root, [path], NO_PLAN).startswith("reasons unknown, ")


def test_reasons_are_counted_over_all_files_without_blank_lines(root: str) -> None:
    paths = [
        write(root, "a", "empty text", BLANK_LINE, "not UTF-8"),
        write(root, "b", *["empty text"] * 1500, BLANK_LINE),
    ]
    assert count_reasons(root, paths, NO_PLAN) == "1,501 empty text, 1 not UTF-8"


def test_null_texts_name_the_keys_that_the_file_has(root: str) -> None:
    path = write(root, "a.jsonl", NULL_TEXT)
    assert count_reasons(root, [path], NO_PLAN) == "1 null text", "a file that is gone has no keys"


def test_without_a_name_it_is_the_last_run_that_committed_or_that_rejects_ended(root: str) -> None:
    with pytest.raises(OptionError, match="has no list of rejected rows; check the path"):
        find_rejecting_run(root, None)
    night(root, 0, numbered(0, 5))
    assert find_rejecting_run(root, None) == (run_name(0), [])
    record_rejected(root, run_name(1), [LISTED])
    assert find_rejecting_run(root, None) == (run_name(1), [LISTED])
    night(root, 2, numbered(0, 4))
    assert find_rejecting_run(root, None) == (run_name(2), [])


def test_a_run_that_is_named(root: str) -> None:
    night(root, 0, numbered(0, 5))
    record_rejected(root, run_name(1), [LISTED])
    night(root, 2, numbered(0, 4))
    assert find_rejecting_run(root, run_name(1)) == (run_name(1), [LISTED])
    assert find_rejecting_run(root, run_name(0)) == (run_name(0), [])
    with pytest.raises(OptionError, match="has no run 2030"):
        find_rejecting_run(root, "2030")


def test_the_first_list_of_a_run_stays_and_a_changed_one_is_refused(root: str) -> None:
    night(root, 0, numbered(0, 5))
    record_rejected(root, run_name(1), [LISTED])
    record_rejected(root, run_name(1), [OTHER])
    assert find_rejecting_run(root, None)[1] == [LISTED]
    path = Path(root) / "runs" / run_name(1) / "rejected.json"
    for wrong in (b"[]", b"{", b'{"rejects": ["../outside.parquet"]}'):
        path.write_bytes(wrong)
        with pytest.raises(SentenceBeamError, match="is not the list that was written"):
            find_rejecting_run(root, None)
