"""What a push writes and deletes, on made-up stores, without a database."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.pushes import Kept, files_of

from sentence_beam.transforms.base.errors import DataGateError
from sentence_beam.transforms.push.pushed_rows import find_columns
from sentence_beam.transforms.push.snapshot_difference import Difference, compare
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.changed_rows import Changes

TEXTS = {f"i{n}": f"text {n}" for n in range(9)}
Listing = Callable[[], Iterable[pa.RecordBatch]]


@pytest.fixture
def store(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "store")


def night(store: Kept, texts: dict[str, str]) -> Manifest:
    """A snapshot of these rows, three to a file."""
    store.commit_without_index(files_of(texts))
    manifest = read_manifest(str(store.root))
    assert manifest is not None
    return manifest


def difference(
    store: Kept, new: Manifest, *old: Manifest, listing: Listing | None = None
) -> Difference:
    return compare(new, find_columns(new), list(old), listing, str(store.root.parent))


def deleted(found: Difference) -> list[str]:
    return sorted(i for batch in found.read_deletions() for i in batch.column("id").to_pylist())


def test_an_empty_table_takes_every_row(store: Kept) -> None:
    new = night(store, TEXTS)
    found = difference(store, new)
    assert (found.written, found.before, found.counts) == (9, 0, Changes(added=9))
    assert deleted(found) == []
    assert found.keys == ("id",)


def test_the_same_snapshot_is_not_read(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    old = night(store, TEXTS)
    new = night(store, TEXTS)
    monkeypatch.setattr("sentence_beam.transforms.push.snapshot_difference.read_rows", None)
    found = difference(store, new, old)
    assert (found.written, found.before, found.deletable) == (0, 9, 0)
    assert found.counts == Changes()


def test_only_rows_that_differ_are_written_and_missing_ones_deleted(store: Kept) -> None:
    old = night(store, TEXTS)
    changed = {**TEXTS, "i1": "another text", "i9": "a new one"}
    del changed["i8"]
    new = night(store, changed)
    found = difference(store, new, old)
    assert found.counts == Changes(added=1, changed=1, deleted=1)
    assert (found.written, found.deletable) == (2, 1)
    assert deleted(found) == ["i8"]
    # the second row of a file, the first of a new one
    assert sorted(list(rows) for rows in found.rows.values()) == [[0], [1]]


def test_a_row_is_written_unless_all_snapshots_that_may_be_there_have_it(store: Kept) -> None:
    """A push of the second snapshot did not end: a row may be as in either of two."""
    left = night(store, TEXTS)
    broken = night(store, {**TEXTS, "i0": "other", "i20": "some"})
    found = difference(store, night(store, TEXTS), left, broken)
    assert found.written == 1
    assert found.counts == Changes(changed=1)
    assert deleted(found) == ["i20"]
    assert found.deletable == 1


def listed(*ids: str) -> Listing:
    return lambda: [pa.record_batch({"id": list(ids)})]


def test_rows_of_a_table_whose_keys_alone_are_known_are_all_written(store: Kept) -> None:
    new = night(store, TEXTS)
    found = difference(store, new, listing=listed("i0", "i1", "foreign"))
    assert (found.written, found.before) == (9, 3)
    assert found.counts == Changes(added=7, changed=2, deleted=1)
    assert deleted(found) == ["foreign"]


def test_a_key_that_is_listed_twice_is_deleted_and_written(store: Kept) -> None:
    new = night(store, TEXTS)
    found = difference(store, new, listing=listed("i0", "i0"))
    assert found.written == 9
    assert deleted(found) == ["i0"]
    assert found.counts.deleted == 0


def test_two_rows_with_one_id_are_refused(store: Kept) -> None:
    store.commit_without_index({"a": [("same", "one"), ("same", "two")]})
    with pytest.raises(DataGateError, match="the id 'same' is that of several rows"):
        difference(store, store.manifest)
