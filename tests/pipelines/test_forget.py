"""forget on made-up stores: which files it reads, what it refuses, and what comes after it."""

import errno
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import ids_of
from helpers.erasing import (
    GONE,
    KeptTexts,
    files,
    forget,
    others,
    planted,
    read,
    rows,
    three_nights,
)
from helpers.faulty_disk import WRITING, Disk, refuse
from helpers.snapshots import parts_of, small_parts
from helpers.store_scan import scan
from helpers.watching import BY_ID

from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import snapshots
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.shards.id_hashes import id_hashes
from sentence_beam.transforms.store.verify import faults
from sentence_beam.transforms.store.watched import read_answers

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three snapshots, to copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MOST_WORN", 1.0)
        return three_nights(tmp_path_factory.mktemp("three"), "IVF8,SQ8", 40).root


@pytest.fixture
def store(three: Path, tmp_path: Path) -> Path:
    """A store with three snapshots."""
    return Path(shutil.copytree(three, tmp_path / "store"))


def test_a_manifest_in_parts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    nights = KeptTexts(tmp_path / "store", options=BY_ID)
    some = {f"f{i}": rows(f"person-{i}", 10) for i in range(5)}
    nights.commit_without_index(some)
    nights.commit_without_index({**some, "left": rows("left", 10)})
    store = nights.root
    gone = ["person-0-00003", "person-4-00001", "left-00002"]
    traces, before = planted(store, gone), others(store, gone)
    parts = set(store.glob("manifests/parts/*"))
    forget(run, store, *gone).ok()
    assert scan(store, traces) == []
    after = others(store, gone)
    assert {name: after[name] for name in before} == before
    found = [read(store, one).data for one in snapshots(str(store))]
    named = {
        store / part["path"]
        for data in found
        for kind in ("files", "units")
        for part in parts_of(store, data, kind)
    }
    assert set(store.glob("manifests/parts/*")) == named
    assert parts & named  # those of units without an erased row stay
    assert parts - named
    for name in snapshots(str(store)):
        assert [line for line in faults(read(store, name)) if "result of a run" not in line] == []
    run("verify", "--store", store, "--forgotten").ok()


def test_only_shards_that_hold_the_rows_are_read(run: Run, tmp_path: Path) -> None:
    """All others are unreadable, and neither lost nor written again."""
    nights = KeptTexts(tmp_path / "store", options=BY_ID)
    nights.commit_without_index({f"f{i:03d}": rows(f"person-{i}", 5) for i in range(100)})
    store = nights.root
    shards = [Path(path) for path in nights.manifest.shard_paths]
    gone = ["person-7-00003", "person-60-00000", "person-60-00004"]
    for path in shards:
        id_hashes(str(store), str(path.relative_to(store)))
        if not set(gone) & set(pq.read_table(path).column("id").to_pylist()):
            path.write_bytes(b"unreadable")
    receipt = json.loads(forget(run, store, *gone, options=("--json",)).ok().out)
    assert (receipt["rows"], len(receipt["rewritten"])) == (3, 2)
    assert sum(path.exists() and path.read_bytes() == b"unreadable" for path in shards) == 98


def test_rows_that_had_other_ids_before(run: Run, tmp_path: Path) -> None:
    """Ids were made of places once; earlier snapshots have the row under such an id."""
    nights = KeptTexts(tmp_path / "store", options=RememberedOptions())
    person = rows("person", 10)
    nights.commit_without_index({"f": [(f"f@{n}", text) for n, (_, text) in enumerate(person)]})
    nights.options = BY_ID
    nights.commit_without_index({"f": person})
    traces = planted(nights.root, ["person-00003", "f@3"])
    assert len(traces) == 2
    forget(run, nights.root, "person-00003").ok()
    assert scan(nights.root, traces) == []


@pytest.mark.parametrize("place", ["manifests/parts/", "manifests/2"])
def test_a_folder_of_snapshots_that_cannot_be_written(run: Run, store: Path, place: str) -> None:
    traces, current = planted(store, GONE[:1]), read(store).run
    denied = Disk(store, f"create {place}", WRITING, refuse(errno.EACCES))
    with denied.used():
        forget(run, store, GONE[0]).failed(1, "manifests/", "Permission denied", "forget again")
    assert denied.met == 1
    assert read(store).run == current
    assert GONE[0] in ids_of(store)
    forget(run, store, GONE[0]).ok()
    assert scan(store, traces) == []


def test_ids_that_nobody_has_and_too_many_rows(run: Run, store: Path) -> None:
    half = [f"person-{i}-{n:05d}" for i in (1, 2) for n in range(40)]
    forget(run, store, *half).failed(3, "80 rows of ", "--max-deletes 0.5")
    options = ("--missing-ok", "--max-deletes", 0.9, "--json")
    receipt = json.loads(forget(run, store, *half, "nobody-1", options=options).ok().out)
    assert (receipt["rows"], len(receipt["ids"])) == (80, 81)
    assert not set(half) & set(ids_of(store))
    run("verify", "--store", store, "--forgotten").ok()


def test_answers_after_an_erasure_are_no_alarm(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run asks again; what moved up is no lost answer."""
    nights = three_nights(tmp_path, "IVF8,SQ8", 40)
    changed = {**files(40), "late": rows("late", 14)}
    nights.watch(["a question", "b question", "c question"], k=5)
    nights.night(changed)
    watch = read(nights.root).watch
    assert watch is not None
    gone = {answer.id for of in read_answers(str(nights.root), watch) for answer in of[:2]}
    receipt = json.loads(forget(run, nights.root, *gone, options=("--json",)).ok().out)
    assert receipt["watch"]["answers"] >= len(gone)
    watch = read(nights.root).watch
    assert watch is not None
    assert all(len(of) < 5 for of in read_answers(str(nights.root), watch))
    nights.entry = watch
    left = {name: [row for row in some if row[0] not in gone] for name, some in changed.items()}
    gates = UsedGates(max_answer_change=0)
    figures, _ = nights.night({**left, "late": [*left["late"], ("more-1", "z more")]}, gates)
    assert (figures.lost, figures.first_changed) == (0, 0.0)
    assert all(len(of) == 5 for of in read_answers(str(nights.root), nights.entry))


def test_whole_documents(run: Run, model: Path, tmp_path: Path) -> None:
    """An expression that matches a piece erases its document with --documents alone."""
    path = tmp_path / "in.csv"
    path.write_text(
        "id,text\n"
        + "".join(f"d{n},{' '.join(f's{n} w{i}' for i in range(9))}\n" for n in range(6))
    )
    command = ("embed", "--input", path, "--store", tmp_path / "store", "--model", model)
    run(*command, "--id-column", "id", "--chunks", "budget:tokens=8", "--keep-text").ok()
    erase = ("forget", "--store", tmp_path / "store", "--where", "id = 'd3' AND piece = 1")
    run(*erase).failed(2, "'d3'", "--documents")
    receipt = json.loads(run(*erase, "--documents", "--json").ok().out)
    assert len(receipt["ids"]) == 1
    assert set(ids_of(tmp_path / "store")) == {"d0", "d1", "d2", "d4", "d5"}


@pytest.mark.parametrize("partition", ["file", "content"])
def test_an_erased_row_that_cannot_be_embedded_leaves_no_id(
    run: Run, model: Path, tmp_path: Path, partition: str
) -> None:
    table = tmp_path / "a.csv"
    made = tmp_path / "made"
    embed = ("embed", "--input", table, "--store", made, "--partition", partition)
    table.write_text("id,text\nkept,a dog\nperson-7,a cat\n")
    run(*embed, "--model", model, "--id-column", "id").ok()
    run("forget", "--store", made, "--id", "person-7", "--max-deletes", 1).ok()
    table.write_text("id,text\nkept,a dog\nperson-7,\n")
    run(*embed, "--max-rejects", 1).ok()
    [rejects] = (made / "rejects").iterdir()
    [rejected] = pq.read_table(rejects).to_pylist()
    assert rejected["reason"] == "forgotten"
    assert "person-7" not in str(rejected)
