"""Groups of small files: which files share units, and which groups stay as they were."""

from types import SimpleNamespace
from typing import Any

import pytest

from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.groups import SMALL, group_name
from sentence_beam.transforms.steps.plan.groups import (
    groups_by_size,
    groups_on_record,
    stuck_groups,
)
from sentence_beam.transforms.store.runs.plan import PlannedFile

NAMES = [f"{number}.txt" for number in range(SMALL)]


def planned(name: str, size: int = 60, bad: str = "") -> PlannedFile:
    """A file of some twenty tokens, or one that cannot be read."""
    return PlannedFile(InputFile(f"/in/{name}", name, "text", "", size, "sum", "v"), bad=bad)


def snapshot(groups: dict[str, str], bits: int | None = None, empty: tuple[str, ...] = ()) -> Any:
    """The last snapshot, with the group of each file, "" for a file with units of its own."""
    entries = {
        name: SimpleNamespace(path=name, group=group, size=0 if name in empty else 60)
        for name, group in groups.items()
    }
    return SimpleNamespace(
        files_by_path=entries, group_bits=bits, group_of=lambda entry: entry.group
    )


def job(unit_tokens: int = 10_000, limit: int | None = None) -> Any:
    """What the sizes of units say of a run."""
    return SimpleNamespace(limit=limit, run=SimpleNamespace(unit_tokens=unit_tokens))


def names_of(groups: dict[str, list[PlannedFile]]) -> dict[str, list[str]]:
    return {name: [item.file.relative for item in items] for name, items in groups.items()}


def test_small_files_are_grouped_by_their_names() -> None:
    found = groups_by_size([planned(name) for name in NAMES], None, job(), keep_bits=False)
    assert names_of(found) == {group_name("", 0): NAMES}
    many = [planned(f"{number}.txt", 900) for number in range(400)]
    found = groups_by_size(many, None, job(), keep_bits=False)
    assert len(found) > 1
    assert sorted(name for names in names_of(found).values() for name in names) == sorted(
        item.file.relative for item in many
    )
    for name, items in names_of(found).items():
        bits = int(name[1:].partition("-")[0])
        assert {group_name(item, bits) for item in items} == {name}


def test_large_and_unreadable_files_and_too_few_stay_alone() -> None:
    files = [planned(name) for name in NAMES]
    assert groups_by_size(files[1:], None, job(), keep_bits=False) == {}
    others = [planned("large.txt", 10_000_000), planned("bad.txt", bad="unreadable")]
    found = groups_by_size([*files, *others], None, job(), keep_bits=False)
    assert names_of(found) == {group_name("", 0): NAMES}


def test_a_run_with_a_limit_groups_nothing() -> None:
    files = [planned(name) for name in NAMES]
    assert groups_by_size(files, None, job(limit=10), keep_bits=False) == {}


def test_a_store_with_groups_keeps_their_number_while_they_are_not_too_large() -> None:
    files = [planned(name) for name in NAMES[:3]]
    last = snapshot({}, bits=2)
    found = groups_by_size(files, last, job(), keep_bits=False)
    assert names_of(found).keys() == {group_name(name, 2) for name in NAMES[:3]}


@pytest.mark.parametrize("keep", [False, True])
def test_a_group_that_cannot_be_read_now_keeps_the_number_of_groups(keep: bool) -> None:
    many = [planned(f"{number}.txt", 1500) for number in range(400)]
    found = groups_by_size(many, snapshot({}, bits=0), job(), keep_bits=keep)
    assert (len(found) == 1) is keep


def test_a_run_that_appends_keeps_the_groups_of_the_snapshot() -> None:
    last = snapshot({"a.txt": "f0-0", "own.txt": ""})
    files = [planned("a.txt"), planned("own.txt"), planned("new.txt")]
    assert names_of(groups_on_record(files, last)) == {"f0-0": ["a.txt"]}
    assert groups_on_record(files, None) == {}
    assert groups_on_record([planned("a.txt", bad="unreadable")], last) == {}


def test_a_group_is_stuck_if_a_file_with_rows_in_it_cannot_be_read() -> None:
    last = snapshot(
        {"a.txt": "f1-0", "b.txt": "f1-1", "own.txt": "", "none.txt": "f1-1"}, empty=("none.txt",)
    )
    bad = [planned(name, bad="unreadable") for name in ("a.txt", "own.txt", "none.txt", "new.txt")]
    assert names_of(stuck_groups([*bad, planned("b.txt")], last)) == {"f1-0": ["a.txt"]}
