"""Groups of small files: which files share units, and which groups stay as they were."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.plans import job_of
from helpers.snapshots import group_name

from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.groups import SMALL
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.grouped_files import LastFiles, put_in_groups
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows, make_row
from sentence_beam.transforms.store.tables.table_columns import FILES

NAMES = [f"{number}.txt" for number in range(SMALL)]


def file_of(name: str, size: int = 60) -> InputFile:
    """A file of some twenty tokens."""
    return InputFile(f"/in/{name}", name, "text", "", size, "sum", "v")


def opened(name: str, size: int = 60) -> dict[str, Any]:
    """The row of a file that was opened."""
    file = file_of(name, size)
    return OpenedFile(file, (Span(file, 0, 0, size),)).row()


def bad(name: str) -> dict[str, Any]:
    """The row of a file that cannot be read and had no rows."""
    return make_row(file_of(name, 0)) | {"carried": False, "spans": [], "bad": "unreadable"}


def carried(name: str) -> dict[str, Any]:
    """The row of a file that has not changed."""
    return make_row(file_of(name)) | {"carried": True}


def last_files(groups: dict[str, str | None], damaged: tuple[str, ...] = ()) -> LastFiles:
    """The last snapshot's files by group, None for a file with units of its own."""
    rows = [
        make_row(file_of(name)) | {"group": group, "units": int(group is None)}
        for name, group in sorted(groups.items())
    ]
    is_damaged = np.array([row["path"] in damaged for row in rows], bool)
    return LastFiles(pa.Table.from_pylist(rows, FILES), is_damaged, {0: "embeddings/x.parquet"})


NOTHING = last_files({})


def job(**values: Any) -> EmbedJob:
    """A run whose units have 10,000 tokens."""
    made = job_of(Path("/nowhere"), "in/*", unit_tokens=10_000, **values)
    return replace(made, carry=values.get("carry", True))


def groups_of(rows: list[dict[str, Any]], last: LastFiles, run: EmbedJob) -> dict[str, list[str]]:
    """The files of each group, by its name."""
    table = put_in_groups(make_planned_rows(rows).sort_by("path"), last, run)
    found: dict[str, list[str]] = defaultdict(list)
    for row in table.to_pylist():
        if row["group"] is not None:
            found[row["group"]].append(row["path"])
    return dict(found)


def test_small_files_are_grouped_by_their_names() -> None:
    found = groups_of([opened(name) for name in NAMES], NOTHING, job())
    assert found == {group_name("", 0): sorted(NAMES)}
    many = [f"{number}.txt" for number in range(400)]
    found = groups_of([opened(name, 900) for name in many], NOTHING, job())
    assert len(found) > 1
    assert sorted(name for names in found.values() for name in names) == sorted(many)
    for name, files in found.items():
        bits = int(name[1:].partition("-")[0])
        assert {group_name(file, bits) for file in files} == {name}


def test_large_and_unreadable_files_and_too_few_stay_alone() -> None:
    files = [opened(name) for name in NAMES]
    assert groups_of(files[1:], NOTHING, job()) == {}
    others = [opened("large.txt", 10_000_000), bad("bad.txt")]
    assert groups_of([*files, *others], NOTHING, job()) == {group_name("", 0): sorted(NAMES)}


def test_files_without_rows_make_no_group() -> None:
    assert groups_of([OpenedFile(file_of(name)).row() for name in NAMES], NOTHING, job()) == {}


def test_a_run_with_a_limit_groups_nothing() -> None:
    assert groups_of([opened(name) for name in NAMES], NOTHING, job(limit=10)) == {}


def test_a_store_with_groups_keeps_their_number_while_they_are_not_too_large() -> None:
    last = last_files({"old.txt": "f2-0"})
    found = groups_of([opened(name) for name in NAMES[:3]], last, job())
    assert found.keys() == {group_name(name, 2) for name in NAMES[:3]}


@pytest.mark.parametrize("keep", [False, True])
def test_a_group_that_cannot_be_read_now_keeps_the_number_of_groups(keep: bool) -> None:
    files = [opened(f"{number}.txt", 1500) for number in range(400)]
    last = last_files({"old.txt": "f0-0"})
    if keep:
        files.append(carried("old.txt") | {"bad": "unreadable"})
    found = groups_of(files, last, job())
    assert (set(found) == {"f0-0"}) is keep


def test_a_run_that_appends_keeps_the_groups_of_the_snapshot() -> None:
    last = last_files({"a.txt": "f0-0", "own.txt": None})
    files = [carried("a.txt"), carried("own.txt"), opened("new.txt")]
    assert groups_of(files, last, job(append=True)) == {"f0-0": ["a.txt"]}
    assert groups_of([opened("new.txt")], NOTHING, job(append=True)) == {}


def test_a_run_that_appends_does_not_read_a_group_with_a_damaged_shard() -> None:
    last = last_files({"a.txt": "f0-0"}, damaged=("a.txt",))
    with pytest.raises(Exception, match=r"embeddings/x\.parquet .* run again without append=True"):
        groups_of([carried("a.txt")], last, job(append=True))
