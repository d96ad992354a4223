"""Commands on a Flink cluster leave the store that they leave in process, to the bit."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.corpora import check_ledger, ids_of, manifest_of, sentences, write_parquet
from helpers.engines import (
    OPTIONS,
    QUIET,
    ROOT,
    Flink,
    files_of,
    neighbours_of,
    sidecars,
    start,
    the_same,
    workers,
)
from helpers.flink import wait
from helpers.snapshots import units_of

from sentence_beam.pipelines.common import engine_jobs
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import snapshots
from sentence_beam.transforms.store.runs import lease

pytestmark = pytest.mark.timeout(1200)


def embed(corpus: str, store: Path, model: Path, *options: object) -> list[object]:
    return ["embed", "--input", corpus, "--store", store, "--model", model, *OPTIONS, *options]


@pytest.mark.slow
def test_the_loss_of_a_task_manager_changes_nothing(
    on_flink: Flink, few: str, model: Path, tmp_path: Path
) -> None:
    here, lossy = tmp_path / "here", tmp_path / "lossy"
    start(embed(few, here, model)).ended().ok()
    on_flink.pace(0.5)
    running = on_flink.start(*embed(few, lossy, model))
    wait(lambda: sidecars(lossy) >= 4, "four units")
    on_flink.cluster.kill(on_flink.cluster.task_managers()[0])
    on_flink.cluster.start_task_manager()
    wait(lambda: sidecars(lossy) >= 6, "two more")
    on_flink.pace(0.0)
    running.ended().ok()
    assert the_same(lossy) == the_same(here)
    check_ledger(lossy, 120, embedded=120)
    again = len(on_flink.seen("forwards")) - sidecars(here) - len(on_flink.seen("loads"))
    assert again <= 8, "more than the units that were in flight"


@pytest.mark.slow
def test_both_task_managers_embed(
    on_flink: Flink, corpus: str, model: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    start(embed(corpus, here, model)).ended().ok()
    on_flink.pace(0.1)  # a worker that starts late must find work left
    outcome = on_flink.run(*embed(corpus, there, model)).ok()
    assert "360 written of 360 read" in outcome.out
    assert the_same(there) == the_same(here)
    assert len(workers(there)) == 2
    assert len(on_flink.seen("workers")) == 2, "a worker was not kept from stage to stage"
    loads = on_flink.seen("loads")
    assert len(loads) == len(set(loads)) == 2, "one model a process"
    # each process embeds the canary
    assert len(on_flink.seen("forwards")) == sidecars(here) + len(loads)
    check_ledger(there, 360, embedded=360)
    run = json.loads((there / "manifest.json").read_text())["run"]
    job = lease.Lease(
        run, "", None, "FlinkRunner", f"sentence-beam-{run}".lower().replace("_", "-"), 0.0
    )
    ended = engine_jobs.ask_state(replace(job, engine=f"http://{on_flink.cluster.address}"))
    assert ended is lease.JobState.ENDED, on_flink.cluster.get("jobs/overview")


@pytest.mark.slow
def test_the_same_neighbours(on_flink: Flink, corpus: str, model: Path, tmp_path: Path) -> None:
    store, here, there = (tmp_path / name for name in ("store", "here", "there"))
    start([*embed(corpus, store, model), "--index", "IVF8,SQ8"]).ended().ok()
    start(neighbours_of(store, here)).ended().ok()
    start([*neighbours_of(store, there), *on_flink.flags()], light=True).ended().ok()
    assert files_of(there) == files_of(here)


@pytest.mark.slow
def test_rows_are_erased_alike(on_flink: Flink, few: str, model: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    start([*embed(few, here, model), "--index", "IVF8,SQ8"]).ended().ok()
    start(["forget", "--store", here, "--id", ids_of(here)[7]]).ended().ok()  # the key is made
    shutil.copytree(here, there)
    names = ids_of(here)[30:60:10]
    start(["forget", "--store", here, "--id", *names]).ended().ok()
    on_flink.run("forget", "--store", there, "--id", *names).ok()
    assert the_same(there) == the_same(here)
    assert not set(names) & set(ids_of(there))
    assert snapshots(str(there)) == [manifest_of(there)["run"]]
    start(["verify", "--store", there, "--forgotten"]).ended().ok()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("partition", ["file", "content"])
def test_nights_with_an_index(
    on_flink: Flink, corpus: str, model: Path, tmp_path: Path, partition: str
) -> None:
    stores = {name: tmp_path / name for name in ("here", "there")}
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        ids = [f"{number}-{n}" for n in range(180)]
        write_parquet(
            folder / f"{number}.parquet", sentences(180, 180 * number), row_group_size=30, id=ids
        )
    glob = str(folder / "*.parquet")

    def run(where: str, *arguments: object) -> None:
        (on_flink.run(*arguments) if where == "there" else start(arguments).ended()).ok()

    for where, store in stores.items():
        run(where, *embed(glob, store, model, "--partition", partition, "--index", "Flat"))
    assert the_same(stores["there"]) == the_same(stores["here"])
    # Kept from step to step; without that it would be two for each. Where a step takes longer than
    # an idle worker is kept (five seconds), two more begin.
    assert len(on_flink.seen("workers")) <= 4
    assert len(on_flink.seen("loads")) == 2

    texts = [*sentences(360)[90:180], *sentences(90, 500)]  # half of a file is new
    write_parquet(
        folder / "0.parquet", texts, row_group_size=30, id=[f"0-{n}" for n in range(90, 270)]
    )
    for where, store in stores.items():
        run(where, *embed(glob, store, model))
        check_ledger(store, 360, embedded=90)
    assert the_same(stores["there"]) == the_same(stores["here"])

    for where, store in stores.items():
        run(where, "index", "--store", store, "--index", "Flat", "--retrain")
    assert the_same(stores["there"]) == the_same(stores["here"])
    for where, store in stores.items():
        start(["verify", "--store", store]).ended().ok()
        run(where, *embed(glob, store, model))
        check_ledger(store, 360, embedded=0)


@pytest.mark.slow
def test_a_fit(on_flink: Flink, corpus: str, model: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    start(embed(corpus, store, model)).ended().ok()
    fit = ("fit", "--store", store, "--method", "whitening:8", "--output")
    start([*fit, tmp_path / "here"]).ended().ok()
    on_flink.run(*fit, tmp_path / "there").ok()
    here, there = (
        json.loads((tmp_path / name / "fit.json").read_text()) for name in ("here", "there")
    )
    assert here["n"] == there["n"] == 360
    assert np.allclose(here["explained_variance"], there["explained_variance"], rtol=1e-9)
    assert np.allclose(here["mean_cosine"]["after"], there["mean_cosine"]["after"], atol=1e-6)
    assert not on_flink.seen("loads"), "a fit needs no model"


@pytest.mark.slow
def test_a_plan(on_flink: Flink, corpus: str, model: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    plan = ("plan", *embed(corpus, store, model)[1:], "--json")
    here = json.loads(start(plan).ended().ok().out)
    # it measures the model's speed here, so torch is imported
    there = json.loads(start([*plan, *on_flink.flags()]).ended().ok().out)
    counts = ("files", "rows", "units", "carried_units", "input_bytes", "space")
    assert {name: there[name] for name in counts} == {name: here[name] for name in counts}
    assert there["rows"] == 360
    assert not list(store.rglob("plan-*")), "the workers' counts are taken away"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "lance"])
def test_an_export(on_flink: Flink, corpus: str, model: Path, tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store"
    start(embed(corpus, store, model)).ended().ok()
    output = tmp_path / "out"
    on_flink.run("export", "--store", store, "--vectors", kind, "--output", output).ok()
    about = json.loads((output / "vectors.json").read_text())
    ids, vectors = open_store(str(store)).numpy()
    assert (about["rows"], sum(part["rows"] for part in about["parts"])) == (360, 360)
    if kind == "npy":
        found = np.concatenate([np.load(output / part["vectors"]) for part in about["parts"]])
        np.testing.assert_array_equal(found, vectors)
        return
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect(str(output))
    tables = [database.open_table(part["table"]).to_arrow() for part in about["parts"]]
    assert [row_id for table in tables for row_id in table["id"].to_pylist()] == ids.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["file", "content"])
def test_gates_and_bad_rows_end_in_one_attempt(
    on_flink: Flink, model: Path, tmp_path: Path, partition: str
) -> None:
    store = tmp_path / "store"
    glob = write_parquet(
        tmp_path / "in" / "a.parquet", [*sentences(40), "", None], id=[f"i{n}" for n in range(42)]
    )
    arguments = embed(str(glob), store, model, "--partition", partition)
    before = on_flink.cluster.jobs()
    on_flink.run(*arguments).failed(3, "2 of 42 rows rejected")
    on_flink.run(*arguments, "--text-column", "body").failed(2, "a.parquet", "body")
    assert not (store / "manifest.json").exists()
    on_flink.run(*arguments, "--max-rejects", "0.1").ok()
    check_ledger(store, 40, 2)
    jobs = {job: state for job, state in on_flink.cluster.jobs().items() if job not in before}
    assert list(jobs.values()) == ["FINISHED"] * 3
    assert [on_flink.cluster.failures(job) for job in jobs] == [[], [], []]
    (on_flink.hooks / "drift").touch()
    write_parquet(
        tmp_path / "in" / "a.parquet", sentences(40, 900), id=[f"i{n}" for n in range(40)]
    )
    on_flink.run(*arguments).failed(3, "the model's vectors of", "moved")


ROWS = """
import json, sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.corpora import sentences
from sentence_beam import WriteStore

store, model, *flags = sys.argv[1:]
rows = [{"id": n, "text": text, "lang": "en"} for n, text in enumerate(sentences(300))]
with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
    pipeline | beam.Create(rows) | WriteStore(
        store, model=model, dtype="float32", unit_tokens=60, keep_columns="lang", index="Flat")
"""


@pytest.mark.slow
def test_rows_of_a_pipeline_in_the_same_store(on_flink: Flink, model: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    there = tmp_path / "there"
    launcher = Path(sys.executable).with_name("sentence-beam-worker")
    flags = [
        *on_flink.flags(launcher),
        "--flink_submit_uber_jar",
        "--parallelism=2",
        "--environment_cache_millis=5000",
    ]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = {**os.environ, **QUIET, "PYTHONPATH": path}
    for store, runner in ((here, ["--runner=FnApiRunner"]), (there, flags), (there, flags)):
        command = [sys.executable, "-c", ROWS, str(store), str(model), *runner]
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
        if store == there:
            assert lease.writer(str(there)) is None
    night = manifest_of(there)
    first = json.loads((there / "manifests" / f"{night['previous']}.json").read_text())
    wanted = manifest_of(here)
    assert units_of(there, first) == units_of(there) == units_of(here)
    assert first["index"] == wanted["index"]
    assert night["work"]["carried"] == 300
