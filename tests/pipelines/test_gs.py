"""Stores and inputs on gs://: what a folder of this machine gives, gs:// gives too, in few
requests.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.commands import Run, child_process
from helpers.corpora import manifest_of, sentences, write_lines, write_parquet
from helpers.gcs import Gcs, other_server
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.steps.plan import whole_plan
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs import lease

FIELDS = ("unit", "path", "rows", "read", "rejected", "tokens", "bytes", "sha256", "rejects")


def upload(folder: Path, root: str) -> None:
    """Copy a folder's files, over what stands there."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        storage.overwrite(f"{root}/{path.relative_to(folder)}", path.read_bytes())


def manifest(root: str) -> dict[str, Any]:
    """The current manifest of a store."""
    return json.loads(storage.read_bytes(f"{root}/manifest.json"))


def shards(root: Path | str) -> list[tuple[Any, ...]]:
    """What a store says of its shards that must not depend on where they are."""
    return [tuple(unit[name] for name in FIELDS) for unit in units_of(root)]


@pytest.fixture
def corpus(inputs: Path) -> Path:
    """Three kinds of files, one with a row that is rejected."""
    write_parquet(inputs / "a.parquet", sentences(300), row_group_size=100)
    write_lines(inputs / "deep" / "b.txt.gz", sentences(50, 300))
    write_lines(
        inputs / "c.jsonl", [*(json.dumps({"text": text}) for text in sentences(20, 350)), "{}"]
    )
    return inputs


@pytest.mark.parametrize("partition", ["file", "content"])
def test_a_store_on_gs_is_the_one_on_disk(
    run: Run, model: Path, corpus: Path, store: Path, gs: str, partition: str
) -> None:
    upload(corpus, f"{gs}/in")
    how = ("--model", model, "--partition", partition, "--unit-tokens", 2000, "--max-rejects", 0.1)
    run("embed", "--input", corpus / "**", "--store", store, *how).ok()
    run("embed", "--input", f"{gs}/in/**", "--store", f"{gs}/store", *how).ok()
    here, there = manifest_of(store), manifest(f"{gs}/store")
    assert here is not None
    assert len(units_of(store, here)) > 1
    assert shards(f"{gs}/store") == shards(store)
    assert [there[name] for name in ("rows", "work", "space")] == [
        here[name] for name in ("rows", "work", "space")
    ]
    assert {file["source"] for file in files_of(f"{gs}/store")} == {
        f"{gs}/in/{name}" for name in ("a.parquet", "c.jsonl", "deep/b.txt.gz")
    }
    run("verify", "--store", f"{gs}/store").ok()
    told = json.loads(run("info", "--store", f"{gs}/store", "--json").ok().out)
    alike = ("rows", "columns", "shards", "files", "space", "faults")
    assert {name: told[name] for name in alike} == {
        name: open_store(str(store)).info()[name] for name in alike
    }
    again = run("embed", "--input", f"{gs}/in/**", "--store", f"{gs}/store", *how).ok()
    assert manifest(f"{gs}/store")["work"] == {
        "embedded": 0,
        "reused": 0,
        "duplicates": 0,
        "carried": 370,
    }, again
    assert shards(f"{gs}/store") == shards(store)


FILES, ROWS = 60, 8
PART = 16 << 20


def night(inputs: Path, root: str, files: int, changed: int = 0) -> None:
    """A corpus of many small files with ids; in the first `changed` ones half of the texts
    are new.
    """
    for i in range(files):
        texts = sentences(ROWS, ROWS * i)
        if i < changed:
            texts[: ROWS // 2] = sentences(ROWS // 2, 10_000 + ROWS * i)
        ids = pa.array([f"r{row}" for row in range(ROWS * i, ROWS * (i + 1))])
        if not changed or i < changed:
            write_parquet(inputs / f"{i:03d}.parquet", texts, id=ids)
            storage.overwrite(f"{root}/{i:03d}.parquet", (inputs / f"{i:03d}.parquet").read_bytes())


@pytest.fixture
def embed_gs(run: Run, model: Path, gs: str) -> Run:
    """`embed` from the test's folder on gs:// into its store there."""
    there = ("--input", f"{gs}/in/*.parquet", "--store", f"{gs}/store", "--model", model)
    return lambda *options: run("embed", *there, *options)


def test_requests_are_few(embed_gs: Run, inputs: Path, gs: str, gcs: Gcs) -> None:
    night(inputs, f"{gs}/in", FILES)
    before = gcs.bytes
    with gcs.counted() as requests:
        embed_gs().ok()
    assert manifest(f"{gs}/store")["work"]["embedded"] == FILES * ROWS
    assert len(requests) <= 8 * FILES + (gcs.bytes - before) / PART

    # the ids of another column make other shards, once
    for options in ((), ("--id-column", "id"), ()):
        with gcs.counted() as requests:
            embed_gs(*options).ok()
        if not options:
            assert manifest(f"{gs}/store")["work"]["carried"] == FILES * ROWS
            assert len(requests) <= 40 + FILES / 500, requests

    embed_gs("--id-column", "").ok()
    night(inputs, f"{gs}/in", FILES, changed=FILES)
    before = gcs.bytes
    with gcs.counted() as requests:
        embed_gs().ok()
    assert manifest(f"{gs}/store")["work"]["reused"] == FILES * ROWS // 2
    assert len(requests) <= 40 + 8 * FILES + (gcs.bytes - before) / PART


def test_requests_are_few_by_content(embed_gs: Run, inputs: Path, gs: str, gcs: Gcs) -> None:
    night(inputs, f"{gs}/in", FILES)
    how = ("--partition", "content", "--id-column", "id", "--keep-columns", "text")
    embed_gs(*how).ok()
    with gcs.counted() as requests:
        embed_gs().ok()
    assert manifest(f"{gs}/store")["work"]["carried"] == FILES * ROWS
    assert len(requests) <= 41 + FILES / 500, requests


def test_every_command(
    embed_gs: Run, run: Run, model: Path, inputs: Path, store: Path, gs: str, gcs: Gcs, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = f"{gs}/store"
    how = ("--id-column", "id", "--keep-columns", "text", "--index", "auto")
    for changed in (0, 3):
        night(inputs, f"{gs}/in", 12, changed)
        embed_gs(*how).ok()
        run("embed", "--input", inputs / "*.parquet", "--store", store, "--model", model, *how).ok()
    assert shards(there) == shards(store)
    assert manifest(there)["work"]["reused"] == 3 * ROWS // 2

    query = ("--query", sentences(1, 40)[0], "--query", sentences(1, 10_001)[0], "-k", 5)
    found = run("search", "--store", there, *query).ok().out
    assert found == run("search", "--store", store, *query).ok().out
    with gcs.counted() as requests:
        assert run("search", "--store", there, *query).ok().out == found
    # segments are in the cache; the ids of hits are read from the locators
    assert not [
        request for request in requests if "index%2F" in request and ".parquet" not in request
    ]
    assert run("search", "--store", there, *query, "--exact").ok().out == found
    for some in (
        ("--query", "dog", "--where", "id IN ('r3', 'r900')"),
        ("--id", "r3", "--where", "NOT id = 'r5'"),
    ):
        assert (
            run("search", "--store", there, *some).ok().out
            == run("search", "--store", store, *some).ok().out
        )
    assert run("pairs", "--store", there).ok().out == run("pairs", "--store", store).ok().out

    first, second = (
        run_id
        for run_id in re.findall(r"^(\d{8}T\S+)", run("history", "--store", there).ok().out, re.M)
    )
    run("diff", first, second, "--store", there, "--output", tmp_path / "changes.parquet").ok()
    plan = run("plan", "--input", f"{gs}/in/*.parquet", "--store", there).ok().out
    assert "12 carried over" in plan
    assert (
        run("files", "--store", there).ok().out.splitlines()
        == open_store(there).manifest.shard_paths
    )
    run("index", "--store", there, "--index", "Flat", "--retrain").ok()
    run("export", "--store", there, "--output", tmp_path / "encoder").ok()
    run("report", "--store", there, "--output", tmp_path / "report.html").ok()
    run("fit", "--store", there, "--method", "whitening:8", "--output", f"{gs}/whitening").ok()
    run("recalibrate", "--store", there, "--calibration", f"{gs}/whitening").ok()
    run("verify", "--store", there).ok()
    assert "removed" in run("vacuum", "--store", there, "--keep", 1).ok().out
    run("verify", "--store", there).ok()
    assert manifest(there)["rows"]["written"] == 12 * ROWS


def test_a_run_that_failed_is_taken_up(embed_gs: Run, inputs: Path, gs: str, gcs: Gcs) -> None:
    night(inputs, f"{gs}/in", 4)
    with gcs.failing(refused=r"POST /upload/.*"):
        embed_gs().failed(
            1, f"{gs}/store/lease.json: permission denied (403)", f"gs://{gs.split('/')[2]}"
        )
    embed_gs("--max-drift", 0).ok()
    storage.storage_of(gs).delete(f"{gs}/store/manifest.json")
    embed_gs().ok()
    assert manifest(f"{gs}/store")["work"]["embedded"] == 4 * ROWS
    assert len(storage.storage_of(gs).below(f"{gs}/store/embeddings")) == 4


def test_a_second_writer_ends_with_one_line(embed_gs: Run, inputs: Path, gs: str) -> None:
    night(inputs, f"{gs}/in", 1)
    lease.acquire(f"{gs}/store", lease.Lease.from_this_process("run1", "FnApiRunner", "job", True))
    embed_gs().failed(1, f"{gs}/store is being written by run run1")
    assert lease.holds(f"{gs}/store", "run1")
    lease.release(f"{gs}/store", "run1")
    embed_gs().ok()


@pytest.mark.parametrize(
    ("options", "status", "line"),
    [
        (
            ("--input", "gs://nowhere/*.txt", "--store", "{gs}/s"),
            1,
            "there is no bucket gs://nowhere (404)",
        ),
        (("--input", "{gs}/*.txt", "--store", "{gs}/s"), 2, "no file matches"),
        (
            ("--input", "{gs}/in/*.txt", "--store", "gs://nowhere/s"),
            1,
            "there is no bucket gs://nowhere (404)",
        ),
        (("--input", "{gs}/in", "--store", "{gs}/in/s"), 2, "takes in the store"),
        (("--input", "{gs}/in/**", "--store", "{gs}/in/s"), 2, "takes in the store"),
    ],
)
def test_mistakes_are_one_line(
    run: Run, model: Path, gs: str, options: tuple[str, ...], status: int, line: str
) -> None:
    storage.overwrite(f"{gs}/in/a.txt", b"a text\n")
    run("embed", "--model", model, *(option.format(gs=gs) for option in options)).failed(
        status, line
    )


def test_input_that_may_not_be_read_is_one_line(
    embed_gs: Run, inputs: Path, gs: str, gcs: Gcs
) -> None:
    night(inputs, f"{gs}/in", 2)
    with gcs.failing(refused=r"GET /download/.*in%2F001"):
        embed_gs().failed(1, f"{gs}/in/001.parquet: permission denied (403)")


def test_input_that_is_replaced_meanwhile_is_one_line(
    embed_gs: Run, inputs: Path, gs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(inputs, f"{gs}/in", 2)
    path, write_plan = f"{gs}/in/001.parquet", whole_plan.write_plan

    def replace(*arguments: Any, **named: Any) -> None:
        storage.overwrite(path, (inputs / "000.parquet").read_bytes())
        write_plan(*arguments, **named)

    monkeypatch.setattr(whole_plan, "write_plan", replace)
    embed_gs().failed(1, f"{path} was replaced or removed while it was read; run again")
    assert storage.storage_of(gs).stat(f"{gs}/store/manifest.json") is None
    monkeypatch.undo()
    embed_gs().ok()


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["file", "content"])
def test_faults_on_the_way_change_no_byte(
    embed_gs: Run, run: Run, inputs: Path, gs: str, gcs: Gcs, partition: str
) -> None:
    night(inputs, f"{gs}/in", 20)
    embed_gs("--partition", partition, "--index", "auto").ok()
    standing = shards(f"{gs}/store")
    storage.storage_of(gs).delete(
        *(entry.path for entry in storage.storage_of(gs).below(f"{gs}/store"))
    )
    with gcs.failing(unavailable=0.05, cut=0.05, slow=0.05, wait=0.5):
        embed_gs("--partition", partition, "--index", "auto").ok()
        run("verify", "--store", f"{gs}/store").ok()
    assert shards(f"{gs}/store") == standing


@pytest.mark.slow
def test_another_server_gives_the_same(
    embed_gs: Run, run: Run, model: Path, corpus: Path, store: Path, gs: str
) -> None:
    emulator = Path(sys.executable).with_name("gcp-storage-emulator")
    if not emulator.exists():
        pytest.skip("gcp-storage-emulator is not installed")
    run("embed", "--input", corpus / "*.parquet", "--store", store, "--model", model).ok()
    with other_server([str(emulator)]):
        upload(corpus, f"{gs}/in")
        for carried in (0, 300):
            embed_gs().ok()
            assert manifest(f"{gs}/store")["work"]["carried"] == carried
            assert shards(f"{gs}/store") == shards(store)
        run("verify", "--store", f"{gs}/store").ok()


@pytest.mark.slow
def test_a_killed_run_is_taken_up_where_it_ended(
    embed_gs: Run, model: Path, inputs: Path, gs: str
) -> None:
    night(inputs, f"{gs}/in", 40)
    place, arguments = (
        storage.storage_of(gs),
        ["embed", "--input", f"{gs}/in/*.parquet", "--store", f"{gs}/store"],
    )
    arguments += ["--unit-tokens", "100"]  # so that small files do not share a unit
    child = child_process([*arguments, "--model", str(model)])
    child.start()
    while child.is_alive() and len(place.below(f"{gs}/store/sidecars")) < 3:
        time.sleep(0.05)
    child.kill()
    child.join()
    before = {entry.path: entry.version for entry in place.below(f"{gs}/store/embeddings")}
    assert 3 <= len(before) < 40
    embed_gs("--unit-tokens", 100).ok()
    after = {entry.path: entry.version for entry in place.below(f"{gs}/store/embeddings")}
    assert {path: after[path] for path in before} == before
    assert manifest(f"{gs}/store")["work"]["embedded"] == 40 * ROWS


@pytest.mark.slow
def test_of_two_runs_at_once_one_wins(model: Path, inputs: Path, gs: str, tmp_path: Path) -> None:
    night(inputs, f"{gs}/in", 20)
    arguments = [
        "embed",
        "--input",
        f"{gs}/in/*.parquet",
        "--store",
        f"{gs}/store",
        "--model",
        str(model),
    ]
    errors = [tmp_path / "0", tmp_path / "1"]
    children = [child_process(arguments, str(path)) for path in errors]
    [child.start() for child in children]
    [child.join(300) for child in children]
    assert sorted(child.exitcode or 0 for child in children) == [0, 1]
    (lost,) = (
        path.read_text() for child, path in zip(children, errors, strict=True) if child.exitcode
    )
    assert len(lost.splitlines()) == 1
    assert "is being written by run" in lost or "committed while this run worked" in lost
    assert manifest(f"{gs}/store")["rows"]["written"] == 20 * ROWS
