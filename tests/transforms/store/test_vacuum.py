"""Vacuum: what goes, what stays, and what a crash or another writer in the middle of it leaves.

Covers transforms/store/layout.py.
"""

import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from helpers import fake_storage
from helpers.corpora import edit_manifest
from helpers.settled import finish
from helpers.snapshots import (
    begin,
    edit_units,
    night,
    numbered,
    run_name,
    small_parts,
    units_of,
    write_unit,
)

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.storage import Entry
from sentence_beam.transforms.storage.base import select_between
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.removed import naming_removal
from sentence_beam.transforms.store.sealed_json import to_bytes
from sentence_beam.transforms.store.shards.id_hashes import read_id_hashes
from sentence_beam.transforms.store.shards.shard_reading import read_shard
from sentence_beam.transforms.store.vacuum import Rubbish, find_rubbish, remove
from sentence_beam.transforms.store.verification import faults

FOLDERS = ("embeddings", "sidecars", "rejects", "manifests", "index")


def paths(store: Path, *folders: str) -> set[str]:
    """Files of a store by their path in it."""
    found = [
        path
        for folder in folders or FOLDERS
        for path in (store / folder).rglob("*")
        if path.is_file()
    ]
    return {str(path.relative_to(store)) for path in found}


def runs_with_a_snapshot(store: Path) -> set[str]:
    """The runs whose manifests are there."""
    return {path.stem for path in (store / "manifests").glob("*.json")}


def vacuum(
    store: Path, keep: int = 1, older_than: float | None = None, now: float | None = None
) -> Rubbish:
    """Find and remove."""
    rubbish = find_rubbish(str(store), keep, older_than, time.time() if now is None else now)
    remove(rubbish)
    return rubbish


def check_whole(store: Path) -> None:
    """Every snapshot whose manifest is left can be read in full, and nothing else of any unit or
    table is there.
    """
    names: set[str] = set()
    parts: set[str] = set()
    for path in (store / "manifests").glob("*.json"):
        found = open_store(str(store), path.stem).manifest
        assert not list(faults(found))
        units = units_of(store, found.data)
        names |= {word for unit in units for word in (unit["path"], unit["rejects"]) if word}
        parts |= {part.path for table in (found.units, found.files) for part in table.parts}
    assert paths(store, "embeddings", "rejects") == names
    assert paths(store, "manifests/parts") == parts
    assert {Path(path).stem for path in paths(store, "sidecars")} == {
        Path(name).stem for name in names
    }


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of five nights, which tests copy; in each one unit of three is another."""
    store = tmp_path_factory.mktemp("five") / "store"
    for number in range(5):
        night(str(store), number, numbered(0, 5), numbered(5, 9), numbered(100 + number, 110))
    return store


@pytest.fixture
def nights(five: Path, store: Path) -> Path:
    """Five nights; in each one unit of three is another."""
    return Path(shutil.copytree(five, store))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"


def test_a_unit_without_rows_names_no_file(store: Path) -> None:
    night(str(store), 0, {}, numbered(0, 5))
    vacuum(store, older_than=0)
    assert len(paths(store, "sidecars")) == 1
    night(str(store), 1, {}, numbered(0, 5))
    assert not list(faults(open_store(str(store)).manifest))


@pytest.mark.parametrize("keep", [1, 2, 4, 5, 9])
def test_the_newest_snapshots_stay_whole(nights: Path, keep: int) -> None:
    rubbish = vacuum(nights, keep)
    left = [run_name(number) for number in range(5)][-keep:]
    assert list(rubbish.kept) == left[::-1]
    assert runs_with_a_snapshot(nights) == set(left)
    assert open_store(str(nights)).manifest.run == run_name(4)
    check_whole(nights)
    assert not vacuum(nights, keep).files


def test_hashes_of_ids_stay_as_long_as_their_shards(nights: Path) -> None:
    for shard in paths(nights, "embeddings"):
        assert len(read_id_hashes(str(nights), shard))
    before = paths(nights, "ids")
    vacuum(nights, keep=2, older_than=0)
    assert {Path(path).stem for path in paths(nights, "ids")} == {
        Path(path).stem for path in paths(nights, "embeddings")
    }
    assert 0 < len(paths(nights, "ids")) < len(before)


def test_what_is_said_is_what_goes(nights: Path) -> None:
    before = {path: (nights / path).stat().st_size for path in paths(nights, *FOLDERS, "runs")}
    rubbish = vacuum(nights)
    after = paths(nights, *FOLDERS, "runs")
    gone = {path: size for path, size in before.items() if path not in after}
    assert {entry.path: entry.size for entry in rubbish.files} == {
        f"{nights}/{p}": size for p, size in gone.items()
    }
    assert rubbish.by_kind["shards"] == (
        4,
        sum(size for path, size in gone.items() if path.startswith("embeddings/")),
    )
    assert sum(number for number, _ in rubbish.by_kind.values()) == len(gone)


def test_young_snapshots_stay_with_all_that_they_name(nights: Path) -> None:
    now = time.time()
    for number, age in enumerate((5, 4, 3, 2, 1)):
        path = nights / "manifests" / f"{run_name(number)}.json"
        os.utime(path, (now - age * 86_400, now - age * 86_400))
    vacuum(nights, older_than=3.5 * 86_400, now=now)
    # The second one was written before, and was the current one until the third was written.
    assert runs_with_a_snapshot(nights) == {run_name(n) for n in (1, 2, 3, 4)}
    for number in (1, 2, 3, 4):
        assert not list(faults(open_store(str(nights), run_name(number)).manifest))


def test_a_snapshot_that_was_current_for_long_stays_as_long_as_any_other(nights: Path) -> None:
    now = time.time()
    for path in paths(nights, *FOLDERS):
        os.utime(nights / path, (now - 90 * 86_400,) * 2)
    night(str(nights), 5, numbered(200, 205))  # the first one for three months
    vacuum(nights, older_than=7 * 86_400)
    assert runs_with_a_snapshot(nights) == {run_name(4), run_name(5)}
    check_whole(nights)


def test_work_of_a_run_that_did_not_end_stays_for_a_day(store: Path) -> None:
    night(str(store), 0, numbered(0, 5))
    left = write_unit(str(store), 0, list(numbered(7, 9).items()))
    begin(str(store), 1, 1)
    plan = f"runs/{run_name(1)}/plan.parquet"
    made = {plan, left.path, f"sidecars/{Path(str(left.path)).stem}.json"}
    assert not vacuum(store).files
    for older_than, hours, goes in ((50, 23, False), (50, 25, True), (26 * 3600, 25, False)):
        found = find_rubbish(str(store), 1, older_than, time.time() + hours * 3600)
        assert {entry.path.removeprefix(f"{store}/") for entry in found.files} == (
            made if goes else set()
        )
    night(str(store), 2, numbered(20, 23))  # it took nothing of it up
    assert made.isdisjoint(entry.path.removeprefix(f"{store}/") for entry in vacuum(store).files)
    gone = {
        entry.path.removeprefix(f"{store}/")
        for entry in vacuum(store, now=time.time() + 25 * 3600).files
    }
    assert made <= gone
    check_whole(store)


def test_a_snapshot_that_workers_push_stays_with_the_files_of_the_push(nights: Path) -> None:
    """Also if later runs have committed, and `--older-than` is less than the push takes."""
    pushed = run_name(1)
    files = [nights / layout.push_scratch(pushed, f"41c6d2-{n:06d}.arrow") for n in range(2)]
    for path in files:
        path.write_bytes(b"rows")
    day_before = time.time() - 86_400 - 60
    os.utime(files[0], (day_before, day_before))
    for older_than in (None, 0.0):
        found = find_rubbish(str(nights), 1, older_than, time.time() + 60)
        assert set(found.kept) == {pushed, run_name(4)}
        assert not {entry.path for entry in found.files} & {str(path) for path in files}
    vacuum(nights, older_than=0, now=time.time() + 60)
    assert not list(faults(open_store(str(nights), pushed).manifest))
    vacuum(nights, older_than=0, now=time.time() + 86_400 + 60)  # it was killed
    assert not any(path.exists() for path in files)
    assert runs_with_a_snapshot(nights) == {run_name(4)}
    check_whole(nights)


def test_a_reader_names_the_snapshot_that_vacuum_removed(nights: Path) -> None:
    old, current = (open_store(str(nights), run_name(n)).manifest for n in (1, 4))
    shards = [[str(nights / path) for path in one.shard_paths] for one in (old, current)]
    vacuum(nights)
    gone = rf"{nights}: vacuum removed snapshot {run_name(1)} meanwhile; push again$"
    with pytest.raises(SentenceBeamError, match=gone), naming_removal([current, old], "push again"):
        list(chain.from_iterable(read_shard(path, ["id"]) for path in shards[0]))
    with pytest.raises(OptionError, match="another table"), naming_removal([old], "push again"):
        raise OptionError("name another table")
    Path(shards[1][0]).unlink()  # by hand
    with pytest.raises(SentenceBeamError, match="verify lists"), naming_removal([current], "again"):
        list(read_shard(shards[1][0], ["id"]))


def test_the_buckets_of_a_run_that_did_not_end_stay(store: Path) -> None:
    from helpers.snapshots import write_plan

    from sentence_beam.transforms.corpus.buckets import Buckets

    night(str(store), 0, numbered(0, 5))
    names = [
        f"{folder}/{unit}-0123456789abcdef"
        for folder in ("embeddings", "sidecars")
        for unit in ("3-7", "3-6.1")
    ]
    others = ["embeddings/2-3-0123456789abcdef.parquet"]
    for name in (*names, *others):
        (store / f"{name}").write_text("x")
    mine = [name + (".parquet" if "embeddings" in name else ".json") for name in names]
    for name, path in zip(names, mine, strict=True):
        (store / name).rename(store / path)
    write_plan(str(store), run_name(1), [], Buckets(3, 10, 10, 100))
    found = find_rubbish(str(store), 1, 50, time.time() + 3600)
    assert {entry.path.removeprefix(f"{store}/") for entry in found.files} == set(others)


def test_results_stay_since_history_is_made_of_them(nights: Path) -> None:
    vacuum(nights)
    assert {
        path.split("/")[1] for path in paths(nights, "runs") if path.endswith("result.json")
    } == {run_name(number) for number in range(5)}
    assert [path for path in paths(nights, "runs") if path.endswith("plan.parquet")] == [
        f"runs/{run_name(4)}/plan.parquet"
    ]


FOREIGN = [
    "notes.txt", "embeddings/mine.parquet", "embeddings/old/0123456789abcdef-000000000000-0123456789abcdef.parquet",
    "index/readme.md", "sidecars/x.json", "manifests/parts/x.json", "runs/mine/plan.parquet", "mine/a.parquet",
    "embeddings/x.tmp-123", ".mine.lock", "lease.json",
]  # fmt: skip


def test_files_of_names_it_does_not_know_stay(nights: Path) -> None:
    for name in FOREIGN:
        path = nights / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (0, 0))
    vacuum(nights, older_than=0)
    assert all((nights / name).read_text() == "mine" for name in FOREIGN)
    assert (nights / ".manifest.json.lock").exists()


def test_what_a_link_points_to_stays(nights: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "embeddings").mkdir(parents=True)
    name = "0123456789abcdef-000000000000-0123456789abcdef.parquet"
    (outside / "embeddings" / name).write_text("mine")
    (nights / "embeddings" / name).symlink_to(outside / "embeddings" / name)
    (nights / "rejects").symlink_to(outside / "embeddings")
    vacuum(nights, older_than=0, now=time.time() + 1)
    assert (outside / "embeddings" / name).read_text() == "mine"
    assert not (nights / "embeddings" / name).is_symlink()


def test_what_a_crash_left_half_written_goes(nights: Path) -> None:
    names = [f"embeddings/0123456789abcdef-000000000000-0123456789abcdef.parquet.tmp-{'0' * 32}"]
    names += [f"manifest.json.tmp-{'1' * 32}", f"runs/{run_name(4)}/plan.parquet.tmp-{'2' * 32}"]
    for name in names:
        (nights / name).write_text("half")
        os.utime(nights / name, (0, 0))
    vacuum(nights)
    assert not any((nights / name).exists() for name in names)


INDEX = {
    "factory": "Flat",
    "metric": "ip",
    "segments": [],
    "request": {},
    "recall": None,
} | dict.fromkeys(("nprobe", "rerank", "rows"), 0)
BESIDE = {
    "calibration": (
        "calibrations/{}/calibration.json",
        lambda path: {"path": path.rpartition("/")[0], "digest": "d"},
    ),
    "canary": ("canary/{:.16}-0.parquet", lambda path: {"path": path, "sha256": "s"}),
    "ranges": ("ranges/{}.json", lambda path: {"path": path, "digest": "d", "space": "s"}),
    "watch": (
        "watch/{}.parquet",
        lambda path: {
            **{key: {"path": path, "sha256": "d"} for key in ("queries", "answers")},
            **{"count": 1, "k": 1, "digest": "d"},
        },
    ),
    "index": ("index/{}.faiss", lambda path: {**INDEX, "trained": {"path": path, "sha256": "s"}}),
}


@pytest.mark.parametrize("field", BESIDE)
def test_what_stands_beside_shards_goes_with_the_last_snapshot_that_names_it(
    nights: Path, field: str
) -> None:
    name, entry = BESIDE[field]
    used, unused = (name.format(digit * 64) for digit in "ab")
    for path in (used, unused):
        (nights / path).parent.mkdir(parents=True, exist_ok=True)
        (nights / path).write_text("x")
        os.utime(nights / path, (0, 0))
    manifest_path = nights / "manifests" / f"{run_name(3)}.json"
    edit_manifest(manifest_path, json.loads(manifest_path.read_text()) | {field: entry(used)})
    os.utime(manifest_path, (0, 0))
    vacuum(nights, keep=2)
    assert ((nights / used).exists(), (nights / unused).exists()) == (True, False)
    vacuum(nights, keep=1)
    assert not (nights / used).exists()


def test_a_manifest_by_another_name_protects_what_it_names(nights: Path) -> None:
    copy = nights / "manifests" / "before-the-move.json"
    copy.write_bytes((nights / "manifests" / f"{run_name(0)}.json").read_bytes())
    os.utime(copy, (0, 0))
    vacuum(nights)
    assert copy.exists()
    named = [unit["path"] for unit in units_of(nights, json.loads(copy.read_text()))]
    assert all((nights / path).is_file() for path in named)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 99}'])
def test_a_manifest_that_cannot_be_read_stops_it(nights: Path, content: bytes) -> None:
    (nights / "manifests" / f"{run_name(3)}.json").write_bytes(content)
    before = paths(nights)
    with pytest.raises(SentenceBeamError, match=run_name(3)):
        vacuum(nights, keep=3)
    assert paths(nights) == before


def test_a_crash_in_the_middle_leaves_a_readable_store(
    nights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stop in range(1, 40):
        left = iter(range(stop))

        def delete(
            call: Callable[[str], None], *all_paths: str, left: Iterator[int] = left
        ) -> None:
            for path in all_paths:
                if next(left, None) is None:
                    raise KeyboardInterrupt
                call(path)

        with monkeypatch.context() as patch:
            fake_storage.replace_call(patch, "delete", delete)
            try:
                vacuum(nights)
            except KeyboardInterrupt:
                pass
            else:
                break
        for path in (nights / "manifests").glob("*.json"):
            assert not list(faults(open_store(str(nights), path.stem).manifest))
    assert stop > 2
    check_whole(nights)


def test_a_run_that_stood_still_before_its_commit_does_not_name_what_went(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that the lease is its own, and nothing more has to be asked before the manifest
    is replaced.
    """
    root = str(store)
    night(root, 0, numbered(0, 5))
    night(root, 1, numbered(50, 55))
    frozen = [begin(root, 2, 1, leased=True), begin(root, 3, 1)]
    units = [write_unit(root, 0, list(numbered(0, 5).items()))]  # stands since the first night
    vacuum(store, now=time.time() + 2 * 86_400)
    monkeypatch.setattr("sentence_beam.transforms.store.runs.lease.holds", lambda root, run: True)
    for run, said in zip(
        frozen, ("the lease was taken from this run", "vacuum removed files while"), strict=True
    ):
        begin(root, 2 if run.leased else 3, 1)  # the plan, which it had read before
        result = finish(run, units, [])
        assert (result.status, result.exit_code) == ("failed", 1)
        assert said in result.message
    assert open_store(root).manifest.run == run_name(1)
    assert not list(faults(open_store(root).manifest))


def test_a_vacuum_that_stood_still_stops_where_a_run_committed(
    nights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.store.vacuum.BATCH", 2)
    calls = [0]

    def slow(call: Callable[..., None], *all_paths: str) -> None:
        call(*all_paths)
        if "/manifests/" in all_paths[0] and not calls[0]:
            calls[0] += 1
            # units that were to go
            night(str(nights), 5, numbered(0, 5), numbered(5, 9), numbered(100, 110))

    fake_storage.replace_call(monkeypatch, "delete", slow)
    with pytest.raises(
        SentenceBeamError, match=r"a run committed meanwhile; 2 of \d+ files were removed"
    ):
        vacuum(nights)
    assert calls == [1]
    assert not list(faults(open_store(str(nights)).manifest))


def test_the_fence_is_in_one_file_and_only_where_something_went(nights: Path) -> None:
    def manifests() -> tuple[bytes, bytes]:
        current = (nights / "manifest.json").read_bytes()
        return current, (nights / "manifests" / f"{json.loads(current)['run']}.json").read_bytes()

    assert vacuum(nights, keep=5).files == ()
    current, own = manifests()
    assert current == own
    vacuum(nights, keep=3)
    current, own = manifests()
    fenced = json.loads(current)
    assert to_bytes(fenced) == current
    assert fenced.pop("fence")
    assert to_bytes(fenced) == own
    night(str(nights), 5, numbered(0, 5))
    current, own = manifests()
    assert current == own
    assert b"fence" not in current


def test_a_commit_in_between_stops_it(nights: Path) -> None:
    rubbish = find_rubbish(str(nights), 1, None, time.time())
    night(str(nights), 5, numbered(0, 5), numbered(5, 9), numbered(100, 103))
    before = paths(nights)
    with pytest.raises(SentenceBeamError, match="committed meanwhile"):
        remove(rubbish)
    assert paths(nights) == before


def test_very_many_units_in_parts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    for number in range(3):
        night(str(store), number, numbered(0, 5), numbered(5, 9), numbered(100 + number, 110))
    before = paths(store, "manifests/parts")
    vacuum(store)
    assert 2 < len(paths(store, "manifests/parts")) < len(before)
    check_whole(store)


def test_two_million_objects_are_looked_at_within_a_gigabyte(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the memory for each of a thousand, in a storage that lists ranges of names."""
    small_parts(monkeypatch, 100)
    night(str(store), 0, numbered(0, 5), numbered(5, 9), numbered(9, 12))
    names = [f"{number << 52:016x}-000000000000" for number in range(1_000)]
    shards = [layout.shard(name, "0" * 16) for name in names]
    named = [{"unit": name, "path": shard} for name, shard in zip(names, shards, strict=True)]
    edit_units(store, lambda units: [{**units[0], **values} for values in named])
    unnamed = layout.shard(names[0], "1" * 16)
    files = {
        str(store / "embeddings"): [*shards, unnamed],
        str(store / "sidecars"): [layout.sidecar(name, "0" * 16) for name in names],
    }

    def between(_: object, folder: str, low: str, high: str) -> list[Entry]:
        listed = [Entry(str(store / path), 1, "", "", 0.0) for path in files.get(folder, ())]
        return select_between(listed, folder, low, high)

    fake_storage.replace_call(monkeypatch, "lists_ranges", lambda call, folder: True)
    fake_storage.replace_call(monkeypatch, "between", between)
    peaks = []
    for _ in range(2):  # the interpreter's table of strings may grow during one of them
        tracemalloc.start()
        try:
            rubbish = find_rubbish(str(store), 1, None, time.time())
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert [entry.path for entry in rubbish.files] == [str(store / unnamed)]
    assert min(peaks) < 400 * 2 * len(names)


def test_a_reader_of_the_current_snapshot_reads_on(nights: Path) -> None:
    reader = open_store(str(nights))
    vacuum(nights, older_than=0)
    assert reader.dataset().count_rows() == 15


def test_a_run_that_lost_its_lease_to_vacuum_does_not_commit(store: Path) -> None:
    """Its plan, or a shard that it found standing, may be gone."""
    from sentence_beam.transforms.store.runs import lease

    root = str(store)
    night(root, 0, numbered(0, 5))
    night(root, 1, numbered(50, 55))
    silent = begin(root, 2, 1, leased=True)
    units = [write_unit(root, 0, list(numbered(0, 5).items()))]  # stands since the first night
    vacuum(store)
    result = finish(silent, units, [])
    assert (result.status, result.exit_code) == ("failed", 1)
    assert "lease was taken" in result.message
    assert read_manifest(root).run == run_name(1)  # type: ignore[union-attr]
    again = begin(root, 3, 1, leased=True)
    lease.acquire(root, lease.Lease.from_this_process(run_name(3), "FnApiRunner", "job", True))
    units = [write_unit(root, 0, list(numbered(0, 5).items()))]
    assert finish(again, units, []).status == "committed"
    assert not list(faults(open_store(root).manifest))


@pytest.mark.parametrize("make", [lambda s: None, lambda s: (s / "embeddings").mkdir(parents=True)])
def test_where_no_snapshot_is(store: Path, make: Callable[[Path], object]) -> None:
    make(store)
    with pytest.raises(SentenceBeamError, match="holds no snapshot"):
        vacuum(store)


def test_what_the_steps_of_an_index_left_of_a_failed_run_goes(nights: Path) -> None:
    scratch = nights / layout.index_scratch("20260101T000000_000Z-0000ff") / "update-held-0.arrow"
    scratch.parent.mkdir(parents=True)
    scratch.write_bytes(b"rows")
    week = time.time() + 7 * 86_400
    assert layout.kind(str(scratch.relative_to(nights))) == "scratch"
    vacuum(nights, older_than=0, now=week)
    assert not scratch.exists()


def test_a_storage_that_lists_ranges_of_names_gives_the_same(
    nights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = find_rubbish(str(nights), 1, None, time.time())
    fake_storage.replace_call(monkeypatch, "lists_ranges", lambda call, folder: True)
    listed = fake_storage.note(monkeypatch, "between")
    assert find_rubbish(str(nights), 1, None, time.time()) == whole
    assert whole.by_kind["shards"][0] > 1
    assert len(listed) == 64
