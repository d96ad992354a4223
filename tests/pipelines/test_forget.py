"""forget on made-up stores: which files it reads, what it refuses, and what comes after it."""

import errno
import json
import shutil
import sys
import threading
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

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
from helpers.store_scan import decoded, scan
from helpers.variants import variants
from helpers.watching import BY_ID

from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.shards.id_hashes import read_id_hashes
from sentence_beam.transforms.store.verification import faults
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


def test_units_without_the_rows_keep_their_parts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    nights = KeptTexts(tmp_path / "store", options=BY_ID)
    some = {f"f{i}": rows(f"person-{i}", 10) for i in range(5)}
    nights.commit_without_index(some)
    nights.commit_without_index({**some, "left": rows("left", 10)})
    store = nights.root
    gone = ["person-0-00003", "left-00002"]
    traces = planted(store, gone)
    before = others(store, gone)[read(store).run]
    parts = set(store.glob("manifests/parts/*"))
    receipt = json.loads(forget(run, store, *gone, options=("--json",)).ok().out)
    assert scan(store, traces) == []
    assert others(store, []) == {receipt["run"]: before}
    data = read(store).data
    named = {
        store / part["path"] for kind in ("files", "units") for part in parts_of(store, data, kind)
    }
    assert set(store.glob("manifests/parts/*")) == named
    assert parts & named
    assert parts - named
    assert faults(read(store)) == []


def test_only_shards_that_hold_the_rows_are_read(run: Run, tmp_path: Path) -> None:
    """All others are unreadable, and neither lost nor written again."""
    nights = KeptTexts(tmp_path / "store", options=BY_ID)
    nights.commit_without_index({f"f{i:03d}": rows(f"person-{i}", 5) for i in range(100)})
    store = nights.root
    shards = [Path(path) for path in nights.manifest.shard_paths]
    gone = ["person-7-00003", "person-60-00000", "person-60-00004"]
    for path in shards:
        read_id_hashes(str(store), str(path.relative_to(store)))
        if not set(gone) & set(pq.read_table(path).column("id").to_pylist()):
            path.write_bytes(b"unreadable")
    outcome = forget(run, store, *gone, options=("--json",))
    receipt = json.loads(outcome.out)
    assert outcome.status == 1  # the check reads them all
    assert sum("cannot be read" in line for line in receipt["check"]) == 98
    assert (receipt["rows"], receipt["units"]) == (3, 2)
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
        outcome = forget(run, store, GONE[0])
    assert outcome.status == 1
    [line] = outcome.err.splitlines()
    assert "Permission denied" in line
    assert "manifests/" in line
    assert "run again to go on" in line
    assert denied.met == 1
    assert read(store).run == current
    assert GONE[0] in ids_of(store)
    forget(run, store, GONE[0]).ok()
    assert scan(store, traces) == []


@pytest.mark.parametrize(
    "call", ["delete manifests/run2", "delete runs/run1/plan", "rename forgotten/2"]
)
def test_the_end_of_an_erasure_that_cannot_be_written(run: Run, store: Path, call: str) -> None:
    traces = planted(store, GONE[:1])
    kinds = WRITING | {"delete"}
    with Disk(store, call, kinds, refuse(errno.ENOSPC)).used():
        forget(run, store, GONE[0]).failed(1, "No space", "run forget again, which goes on")
    assert GONE[0] not in ids_of(store)
    outcome = run("vacuum", "--store", store)
    assert outcome.status == 0
    assert "finished the erasure" in outcome.err
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
    """The run asks the queries again, says what changed, and no gate holds."""
    nights = three_nights(tmp_path, "IVF8,SQ8", 40)
    changed = {**files(40), "late": rows("late", 14)}
    nights.watch(["a question", "b question", "c question"], k=5)
    nights.night(changed)
    watch = read(nights.root).watch
    assert watch is not None
    gone = {answer.id for of in read_answers(str(nights.root), watch) for answer in of[:2]}
    receipt = json.loads(forget(run, nights.root, *gone, options=("--json",)).ok().out)
    assert receipt["watch"]["change"] > 0.2
    assert receipt["watch"]["causes"].keys() == {"row_deleted"}
    watch = read(nights.root).watch
    assert watch is not None
    assert all(len(of) == 5 for of in read_answers(str(nights.root), watch))
    nights.entry = watch
    left = {name: [row for row in some if row[0] not in gone] for name, some in changed.items()}
    gates = UsedGates(max_answer_change=0)
    figures, _ = nights.night({**left, "late": [*left["late"], ("more-1", "z more")]}, gates)
    assert (figures.lost, figures.first_changed) == (0, 0.0)
    assert all(len(of) == 5 for of in read_answers(str(nights.root), nights.entry))


def test_whole_documents(run: Run, model: Path, tmp_path: Path) -> None:
    """An expression that matches a piece erases its document, and says so."""
    path = tmp_path / "in.csv"
    path.write_text(
        "id,text\n"
        + "".join(f"d{n},{' '.join(f's{n} w{i}' for i in range(9))}\n" for n in range(6))
    )
    command = ("embed", "--input", path, "--store", tmp_path / "store", "--model", model)
    run(*command, "--id-column", "id", "--chunks", "budget:tokens=8", "--keep-text").ok()
    erase = ("forget", "--store", tmp_path / "store", "--where", "id = 'd3' AND piece = 1")
    assert "1 document whole, of which only some pieces match" in run(*erase, "--dry-run").ok().out
    receipt = json.loads(run(*erase, "--json").ok().out)
    assert (receipt["rows"], len(receipt["ids"])) == (3, 1)
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


RETURNS = {
    "null.csv": b"id,text,n\nkept,a dog,1\nperson-7,,2\n",
    "blank.csv": b'id,text,n\nkept,a dog,1\nperson-7,"  ",2\n',
    "wide.csv": b"id,text,n\nkept,a dog,1\nperson-7,private words,2,3\n",
    "type.csv": b"id,text,n\nkept,a dog,1\nperson-7,private words,private words\n",
    "bytes.csv": b"id,text,n\nkept,a dog,1\nperson-7,private words \xff,2\n",
    "id.csv": b"id,text,n\nkept,a dog,1\n,private words,2\n",
    "number.jsonl": b'{"id": "kept", "text": "a dog", "n": 1}\n{"id": "person-7", "text": 5, "n": 2}\n',
    "cut.jsonl": b'{"id": "kept", "text": "a dog", "n": 1}\n{"id": "person-7", "text": "private wor\n',
    "type.jsonl": b'{"id": "kept", "text": "a dog", "n": 1}\n'
    b'{"id": "person-7", "text": "private words", "n": "private words"}\n',
    "bytes.jsonl": b'{"id": "kept", "text": "a dog", "n": 1}\n'
    b'{"id": "person-7", "text": "private words \xff", "n": 2}\n',
    "list.jsonl": b'{"id": "kept", "text": "a dog", "n": 1}\n["person-7", "private words"]\n',
}


@variants(
    ("partition", "has_ids"),
    [("file", True), ("content", False), ("file", False), ("content", True)],
    kept=(0,),
)
def test_a_row_that_returns_and_cannot_be_embedded_is_in_no_file(
    run: Run, model: Path, tmp_path: Path, partition: str, has_ids: bool
) -> None:
    """Whatever else is wrong with it, and however many rows are rejected."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,text,n\nkept,a dog,1\nperson-7,private words,2\nb,,3\n")
    embed = ("embed", "--input", folder / "*", "--store", tmp_path / "store")
    made = ("--model", model, "--partition", partition, "--keep-columns", "n:int")
    ids = ("--id-column", "id" if has_ids else "")
    run(*embed, *made, *ids, "--max-rejects", 1).ok()
    names = ("person-7", "b") if has_ids else ("a.csv#1",)
    run("forget", "--store", tmp_path / "store", "--id", *names, "--max-deletes", 1).ok()
    (folder / "a.csv").unlink()
    for name, data in RETURNS.items():
        (folder / name).write_bytes(data)
        outcome = run(*embed, "--max-rejects", 0, "--max-deletes", 1)
        assert traces_of_person(tmp_path / "store", has_ids) == [], name
        assert not any(word in outcome.err for word in ("person-7", "private"))
        run(*embed, "--max-rejects", 1, "--max-deletes", 1).ok()
        assert traces_of_person(tmp_path / "store", has_ids) == [], name
        (folder / name).unlink()
    run("verify", "--store", tmp_path / "store", "--forgotten").ok()


def traces_of_person(store: Path, has_ids: bool) -> list[str]:
    """The files with the words of the erased row, or with an id that a column had."""
    words = [b"private"]
    if has_ids:
        words.append(b"person-7")
    return [
        str(path)
        for path in store.rglob("*")
        if path.is_file()
        and any(word in part for part in decoded(path.read_bytes()) for word in words)
    ]


def test_few_modules_are_handed_the_id(run: Run, store: Path) -> None:
    """A kind of file that the id travels through would have to know how to erase it."""
    handed: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("sentence_beam."):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(holds(frame.f_locals.get(name), GONE[1]) for name in names):
            handed.add(module)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        forget(run, store, GONE[1])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert len(handed) <= 20, sorted(handed)


def holds(value: Any, wanted: str, depth: int = 6) -> bool:
    """Return whether a value is the text, or something of plain Python that has it."""
    if isinstance(value, str):
        return wanted in value
    if isinstance(value, bytes):
        return wanted.encode() in value
    if depth and isinstance(value, Mapping):
        return any(holds(each, wanted, depth - 1) for pair in value.items() for each in pair)
    if depth and isinstance(value, list | tuple | set | frozenset):
        return any(holds(each, wanted, depth - 1) for each in value)
    if depth and (is_dataclass(value) or isinstance(value, Namespace)):
        return any(holds(each, wanted, depth - 1) for each in vars(value).values())
    return False
