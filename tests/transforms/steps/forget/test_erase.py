"""An erasure on made-up stores, without a command: what is left of the rows, what the receipt
says, and what another writer makes of it.

Covers transforms/steps/forget/check.py.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import fake_storage
from helpers.snapshots import night, numbered, run_name

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.steps.forget.check import forgotten_faults, unlisted
from sentence_beam.transforms.steps.forget.erase import erase, find_rows, finish_unfinished
from sentence_beam.transforms.steps.forget.request import ForgetRequest
from sentence_beam.transforms.store.forgetting.hashes import hash_of_id, read_rows
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots
from sentence_beam.transforms.store.verify import faults

RUN = run_name(7)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of two nights: r0 has another text in the second."""
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9), id_column="id")
    night(root, 1, {**numbered(0, 5), "r0": "another"}, numbered(5, 9), id_column="id")
    return root


def current(root: str) -> Manifest:
    manifest = read_manifest(root)
    assert manifest is not None
    return manifest


def rows_of(manifest: Manifest) -> list[tuple[str, bytes]]:
    """The ids and hashes of a snapshot's rows, in order."""
    tables = [pq.read_table(path) for path in manifest.shard_paths]
    return [(row["id"], row["row_hash"]) for table in tables for row in table.to_pylist()]


def request(*ids: str, **values: object) -> ForgetRequest:
    return ForgetRequest(ids=ids, **values)  # type: ignore[arg-type]


def test_the_rows_leave_every_snapshot_and_all_others_stay(root: str) -> None:
    before = {name: read_manifest(root, name) for name in snapshots(root)}
    rows = {name: rows_of(manifest) for name, manifest in before.items() if manifest}
    shards = [set(manifest.shard_paths) for manifest in before.values() if manifest]
    receipt = erase(root, RUN, find_rows(root, request("r0", "r7", reason="asked")))
    assert (receipt["rows"], receipt["reason"], receipt["dropped"]) == (2, "asked", [])
    assert sorted(snapshots(root)) == sorted([*rows, RUN])
    for name, was in rows.items():
        manifest = read_manifest(root, name)
        assert manifest is not None
        assert rows_of(manifest) == [row for row in was if row[0] not in ("r0", "r7")]
        assert [line for line in faults(manifest) if "result of a run" not in line] == []
    assert current(root).run == RUN
    assert forgotten_faults(current(root), None) == []
    assert unlisted(root) == []
    gone = set.union(*shards) - set(current(root).shard_paths)
    assert not [path for path in gone if Path(path).exists()]
    kept = read_rows(root, current(root).forgotten)
    assert {row.id for row in kept.rows} == {
        hash_of_id(kept.key_with(None, root), name) for name in ("r0", "r7")
    }
    assert set(receipt["ids"]) == {row.id for row in kept.rows}
    assert not any(name in str(receipt["ids"]) for name in ("r0", "r7"))


def test_earlier_snapshots_are_dropped_if_that_is_asked_for(root: str) -> None:
    receipt = erase(root, RUN, find_rows(root, request("r1", drop_history=True)))
    assert receipt["dropped"] == [run_name(0)]
    assert run_name(0) not in snapshots(root)
    assert [name for name, _ in rows_of(current(root))] == [
        f"r{n}" for n in (0, 2, 3, 4, 5, 6, 7, 8)
    ]


def test_a_row_that_comes_back_is_found_by_the_check(root: str) -> None:
    erase(root, RUN, find_rows(root, request("r3")))
    night(
        root, 8, numbered(0, 5), numbered(5, 9), id_column="id", forgotten=current(root).forgotten
    )
    found = forgotten_faults(current(root), None)
    assert [line for line in found if "has the id of an erased row" in line]


def test_the_check_needs_an_erasure_and_its_key(root: str) -> None:
    with pytest.raises(OptionError, match="no row of .* was erased"):
        forgotten_faults(current(root), None)
    key = bytes(range(32))
    erase(root, RUN, find_rows(root, request("r3", key=key)))
    assert forgotten_faults(current(root), key) == []
    for other in (None, bytes(32)):
        with pytest.raises(OptionError):
            forgotten_faults(current(root), other)


def test_killed_at_any_write_nothing_of_it_counts_or_it_is_brought_to_its_end(
    root: str, tmp_path: Path
) -> None:
    """A call that changes the store is refused, and each after it; then another command comes."""
    ends: list[bool] = []
    for number in itertools.count():
        store = str(shutil.copytree(root, tmp_path / f"store{number}"))
        before = rows_of(current(store))
        calls = itertools.count()

        def gone(*_: str, calls: Iterator[int] = calls, number: int = number) -> None:
            if next(calls) >= number:
                raise OSError("the disk is gone")

        with pytest.MonkeyPatch.context() as patch:
            for name in ("put_if_absent", "replace_if", "delete"):
                fake_storage.meet(patch, name, gone)
            try:
                erase(store, RUN, find_rows(store, request("r0", "r7")))
            except OSError:
                pass
            else:
                break
        finish_unfinished(store)
        assert finish_unfinished(store) is None
        is_done = current(store).run == RUN
        if is_done:
            assert forgotten_faults(current(store), None) == []
            assert not {"r0", "r7"} & {name for name, _ in rows_of(current(store))}
        else:
            assert rows_of(current(store)) == before
        ends.append(is_done)
    assert ends == sorted(ends), "once it counts, it counts"
    assert set(ends) == {False, True}


def test_a_run_that_commits_meanwhile_wins(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    erasure = find_rows(root, request("r0"))
    commit: list[Callable[[], object]] = [
        lambda: night(root, 5, numbered(0, 4), numbered(5, 9), id_column="id")
    ]

    def meanwhile(path: str, *_: object) -> None:
        if path.endswith("/manifest.json") and commit:
            commit.pop()()

    fake_storage.meet(monkeypatch, "replace_if", meanwhile)
    with pytest.raises(SentenceBeamError, match="another run committed meanwhile"):
        erase(root, RUN, erasure)
    assert current(root).run == run_name(5)
    assert finish_unfinished(root) is None, "nothing of it counts"
    assert current(root).run == run_name(5)
    assert "r0" in {name for name, _ in rows_of(current(root))}


def test_there_must_be_a_snapshot(tmp_path: Path) -> None:
    with pytest.raises(SentenceBeamError, match="holds no snapshot"):
        find_rows(str(tmp_path), request("r0"))
