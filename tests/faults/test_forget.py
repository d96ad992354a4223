"""forget: after it no file of the store has anything of the rows, and nobody else's rows change.

The scan is an independent reader of all files (`helpers/store_scan.py`).

Covers pipelines/forget.py.
Covers transforms/steps/forget/erasure.py.
Covers transforms/steps/forget/erasure_end.py.
Covers transforms/steps/forget/erased_segments.py.
Covers transforms/steps/forget/receipt.py.
Covers transforms/steps/forget/erasure_record.py.
Covers transforms/steps/forget/queries_left.py.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.commands import Run, code_process
from helpers.corpora import ids_of, manifest_of, rejects_of, sentences, write_parquet
from helpers.erasing import GONE, KeptTexts, forget, others, planted, read, three_nights
from helpers.store_scan import scan

from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.store.manifest import Manifest, snapshots
from sentence_beam.transforms.store.runs.lease import Lease
from sentence_beam.transforms.store.verification import faults

pytest.importorskip("faiss")
FACTORIES = ["IVF8,SQ8"]
FORGET = ("--id", *GONE[:3])
SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("Flat", "IVF8,RaBitQ", "IVF8,PQ16x4", "IVF8_HNSW4,Flat")
]


def hits(nights: KeptTexts, gone: Iterable[str]) -> list[list[tuple[float, str]]]:
    """Return what a search gives, without some rows."""
    texts = ["a question", "b person-1 wrote entry 00017", "c", "d late wrote entry 00005"]
    found = nights.search(texts, 400, nprobe=8)
    return [[hit for hit in of if hit[1] not in gone] for of in found]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of few rows, and deltas that stay."""
    monkeypatch.setattr(upkeep, "MOST_WORN", 1.0)


@pytest.mark.parametrize("factory", [*FACTORIES, *SLOW])
def test_nothing_is_left_and_nobody_else_changes(
    run: Run, tmp_path: Path, small: None, factory: str
) -> None:
    nights = three_nights(tmp_path, factory)
    store = nights.root
    traces = planted(store, GONE)
    was = read(store)
    before = others(store, GONE)[was.run]
    found = hits(nights, GONE)
    assert len(scan(store, traces)) > 20
    receipt = json.loads(forget(run, store, *GONE, options=("--json",)).ok().out)
    assert receipt["rows"] == 4  # one had left already
    assert scan(store, traces) == []
    assert others(store, []) == {receipt["run"]: before}
    if "RaBitQ" not in factory:
        assert hits(nights, GONE) == found
    assert faults(read(store)) == []
    stay = {path for path in index_paths(was) if (store / path).exists()}
    assert stay == index_paths(was) & index_paths(read(store))
    assert stay or factory == "Flat"  # files without an erased row are not written again
    run("verify", "--store", store, "--forgotten").ok()
    again = json.loads(forget(run, store, *GONE, options=("--json",)).ok().out)
    assert again["erased"] is False


def index_paths(manifest: Manifest) -> set[str]:
    """Return the files with the codes of an index."""
    assert manifest.index is not None
    return {segment.path for segment in manifest.index.segments}


@pytest.mark.parametrize("partition", ["content", pytest.param("file", marks=pytest.mark.slow)])
def test_erased_rows_do_not_come_back(
    run: Run, model: Path, tmp_path: Path, partition: str
) -> None:
    store, folder = tmp_path / "store", tmp_path / "in"
    folder.mkdir()
    pair = [(f"person-{i:05d}", text) for i, text in enumerate(sentences(30))]
    equal = (pair[0][0].replace("person", "other"), pair[3][1])  # another person's equal text
    path = write_rows(folder / "a.parquet", [*pair, equal])
    command = ("embed", "--input", folder / "*", "--store", store, "--model", model)
    run(*command, "--id-column", "id", "--partition", partition).ok()
    gone = ["person-00003", "person-00017"]
    traces = planted(store, gone[1:])
    run("forget", "--store", store, "--where", "text = 'nothing'").ok()
    receipt = json.loads(forget(run, store, *gone, options=("--json", "--reason", "x")).ok().out)
    assert (receipt["rows"], receipt["reason"]) == (2, "x")
    path.unlink()
    more = [(f"more-{i}", text) for i, text in enumerate(sentences(20, 30))]
    write_rows(folder / "renamed.parquet", [*reversed(pair), equal, *more])
    out = run(*command, "--max-rejects", 0).ok().out
    assert "2 of the rejected rows were erased" in out
    assert sorted(ids_of(store)) == sorted(
        name for name, _ in [*pair, equal, *more] if name not in gone
    )
    assert scan(store, traces) == []
    kept = [(row["file"], row["row"], row["reason"], row["excerpt"]) for row in rejects_of(store)]
    assert kept == 2 * [("", 0, "forgotten", "")]
    run("verify", "--store", store, "--forgotten").ok()
    run("verify", "--store", store).ok()
    assert len(snapshots(str(store))) == 2
    first = manifest_of(store)["previous"]
    run("rollback", first, "--store", store).ok()
    assert manifest_of(store)["forgotten"]["rows"] == 2
    assert not set(gone) & set(ids_of(store))
    lists = set(store.glob("forgotten/*"))
    run("plan", *command[1:], "--allow-forgotten", gone[0]).ok()
    assert set(store.glob("forgotten/*")) == lists
    run(*command, "--allow-forgotten", gone[0]).ok()
    assert gone[0] in ids_of(store)
    assert manifest_of(store)["forgotten"]["rows"] == 1


def write_rows(path: Path, some: Iterable[tuple[str, str]]) -> Path:
    """Write rows into a Parquet file with a column of ids."""
    ids, words = (list(column) for column in zip(*some, strict=True))
    return write_parquet(path, words, id=ids)


KILLED = """
import sys
from helpers.faulty_disk import Disk, WRITING, die
from pathlib import Path
from sentence_beam.pipelines.cli import main
with Disk(Path({store!r}), {at}, WRITING | {{"delete"}}, die).used():
    sys.exit(main(["forget", "--store", {store!r}, "--id", *{gone!r}, "--quiet"]))
"""
# calls on the disk before the kill: twenty points up to the commit, ten after it
AT = [*range(15, 1415, 70), *range(1455, 1905, 45)]
POINTS = [pytest.param(n, marks=pytest.mark.slow if n != 25 else ()) for n in range(len(AT))]
FINISHERS = ("forget", "vacuum", "index")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three snapshots, to copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MOST_WORN", 1.0)
        return three_nights(tmp_path_factory.mktemp("three"), "IVF8,SQ8", 40).root


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_and_run_again(run: Run, three: Path, tmp_path: Path, point: int) -> None:
    """Until the commit nothing has changed; after it whoever writes next brings it to its end."""
    store = tmp_path / "store"
    shutil.copytree(three, store)
    names = GONE[:3]
    traces = planted(store, names)
    before = others(store, [])
    was = read(store).run
    code = KILLED.format(store=str(store), at=AT[point], gone=names)
    process = code_process(code, tmp_path / "err")
    process.start()
    process.join()
    assert process.exitcode == -9
    if read(store).run == was:
        now = others(store, [])
        assert {name: now[name] for name in before} == before
        forget(run, store, *names).ok()
    else:
        assert "is unfinished" in run("history", "--store", store).ok().out
        finisher = FINISHERS[point % 3]
        again = run(finisher, "--store", store, *(FORGET if finisher == "forget" else ()))
        assert again.status == 0
        assert "finished the erasure of run" in again.err
    assert scan(store, traces) == []
    rows = [row for row in before[was] if row["id"] not in names]
    assert {tuple(map(str, some)) for some in others(store, []).values()} == {tuple(map(str, rows))}
    assert faults(read(store)) == []
    assert not list(store.glob("runs/*/forget.json"))
    assert not (store / "lease.json").exists()
    run("verify", "--store", store, "--forgotten").ok()


def test_what_is_refused(run: Run, three: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(three, store)
    files = sorted(path for path in store.rglob("*") if not path.name.startswith("."))
    forget(run, store, "nobody-1", GONE[0]).failed(2, "nobody-1", "--missing-ok")
    run("forget", "--store", store, "--where", "text != 'x'").failed(3, "--max-deletes")
    run("forget", "--store", store).failed(2, "--id", "--ids", "--where")
    run("verify", "--store", store, "--forgotten").failed(2, "no row")
    run("forget", "--store", store, "--id", GONE[0], "--dry-run").ok()
    (tmp_path / "none.txt").write_text("\n\n")
    run("forget", "--store", store, "--ids", tmp_path / "none.txt").failed(2, "has no id")
    holder = Lease.from_this_process("r", "none", "embed", in_process=True)
    (store / "lease.json").write_bytes(holder.to_bytes())
    forget(run, store, GONE[0]).failed(1, "is being written by run r")
    (store / "lease.json").unlink()
    assert sorted(path for path in store.rglob("*") if not path.name.startswith(".")) == files


def test_files_that_cannot_be_read_are_named_before_anything_is_written(
    run: Run, three: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(three, store)
    manifest = read(store)
    assert manifest.index is not None
    shard = next(
        path
        for path in manifest.shards.column("path").to_pylist()
        if GONE[1] in pq.read_table(store / path).column("id").to_pylist()
    )
    for path in (shard, manifest.index.segments[0].locator, manifest.index.queries.path):
        files = contents(store)
        whole = (store / path).read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (whole[:400], flipped):
            (store / path).write_bytes(damaged)
            forget(run, store, GONE[1]).failed(1, path, "nothing was erased: remove it, run embed")
            (store / path).write_bytes(whole)
            assert contents(store) == files
    (store / shard).unlink()
    forget(run, store, GONE[1]).failed(1, shard, "is missing or damaged", "run embed")


def contents(store: Path) -> dict[Path, bytes]:
    """Return all files of a store but locks."""
    return {
        path: path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
