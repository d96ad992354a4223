"""What goes wrong on a cluster: processes that die, people who cancel, machines that are not set
up.
"""

import os
import random
import signal
import sys
from pathlib import Path

import pytest
from helpers.corpora import check_ledger, manifest_of, sentences, write_parquet
from helpers.engines import OPTIONS, Flink, Started, sidecars, start, the_same
from helpers.flink import wait
from helpers.snapshots import units_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
KILLS = 5
IN_FLIGHT = 8  # units that two workers may have in hand, read, encoded or being written


@pytest.fixture(scope="module")
def calm(corpus: str, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of an undisturbed run in process."""
    store = tmp_path_factory.mktemp("calm") / "store"
    start(embed(corpus, store, model)).ended().ok()
    return store


def embed(corpus: str, store: Path, model: Path) -> list[object]:
    return ["embed", "--input", corpus, "--store", store, "--model", model, *OPTIONS]


def at_random(on_flink: Flink, store: Path, rng: random.Random) -> None:
    """Return at some moment while units are embedded."""
    on_flink.pace(0.3)
    wanted = rng.randrange(2, 30)
    wait(lambda: sidecars(store) >= wanted, f"{wanted} units")


def undisturbed(on_flink: Flink, running: Started, store: Path, calm: Path) -> None:
    """Check that the run ends as if nothing had happened, and what it did again."""
    on_flink.pace(0.0)
    running.ended().ok()
    assert the_same(store) == the_same(calm)
    check_ledger(store, 360, embedded=360)
    again = len(on_flink.seen("forwards")) - sidecars(calm) - len(on_flink.seen("loads"))
    assert again <= IN_FLIGHT


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_task_manager_is_killed(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path, kill: int
) -> None:
    rng, store = random.Random(kill), tmp_path / "store"
    on_flink.pace(0.3)
    running = on_flink.start(*embed(corpus, store, model))
    at_random(on_flink, store, rng)
    on_flink.cluster.kill(rng.choice(on_flink.cluster.task_managers()))
    on_flink.cluster.start_task_manager()
    undisturbed(on_flink, running, store, calm)


def test_all_task_managers_are_killed_at_once(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path
) -> None:
    """As machines of one zone that are reclaimed together, twice."""
    store = tmp_path / "store"
    on_flink.pace(0.3)
    running = on_flink.start(*embed(corpus, store, model))
    for wanted in (sidecars(calm) // 4, sidecars(calm) // 2):
        wait(lambda wanted=wanted: sidecars(store) >= wanted, f"{wanted} units")
        for name in on_flink.cluster.task_managers():
            on_flink.cluster.kill(name)
        for _ in range(2):
            on_flink.cluster.start_task_manager()
    on_flink.pace(0.0)
    running.ended().ok()
    assert the_same(store) == the_same(calm)
    check_ledger(store, 360, embedded=360)
    again = len(on_flink.seen("forwards")) - sidecars(calm) - len(on_flink.seen("loads"))
    assert again <= 2 * IN_FLIGHT


def test_a_task_manager_is_killed_on_a_night_by_content(
    on_flink: Flink, model: Path, tmp_path: Path
) -> None:
    """One of two files has changed: the other one is opened, counted and read again too."""
    here, there, folder = tmp_path / "here", tmp_path / "there", tmp_path / "in"
    for name in ("a", "b"):
        ids = [f"{name}{n}" for n in range(180)]
        write_parquet(
            folder / f"{name}.parquet",
            sentences(180, 180 * (name == "b")),
            row_group_size=30,
            id=ids,
        )
    glob = str(folder / "*.parquet")
    for store in (here, there):
        start([*embed(glob, store, model), "--partition", "content"]).ended().ok()
    texts = [*sentences(90, 180), *sentences(90, 700)]
    write_parquet(folder / "b.parquet", texts, row_group_size=30, id=[f"b{n}" for n in range(180)])
    start(embed(glob, here, model)).ended().ok()
    before = sidecars(there)
    on_flink.pace(0.3)
    running = on_flink.start(*embed(glob, there, model))
    wait(lambda: sidecars(there) >= before + 4, "four units")
    on_flink.cluster.kill(on_flink.cluster.task_managers()[0])
    on_flink.cluster.start_task_manager()
    on_flink.pace(0.0)
    running.ended().ok()
    assert the_same(there) == the_same(here)
    check_ledger(there, 360, embedded=90)


def test_a_task_manager_is_killed_where_results_of_steps_are_written_down(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path
) -> None:
    """As spot machines are to be used: the flag stands behind all others, as in deploy/flink."""
    store, before = tmp_path / "store", on_flink.cluster.jobs()
    on_flink.pace(0.3)
    flags = [*on_flink.flags(), "--", "--execution_mode_for_batch=BATCH_FORCED"]
    running = start([*embed(corpus, store, model), *flags], light=True)
    at_random(on_flink, store, random.Random(40))
    on_flink.cluster.kill(on_flink.cluster.task_managers()[0])
    on_flink.cluster.start_task_manager()
    undisturbed(on_flink, running, store, calm)
    (job,) = on_flink.cluster.jobs().keys() - before
    assert on_flink.cluster.failures(job)
    nodes = on_flink.cluster.get(f"jobs/{job}/plan")["plan"]["nodes"]
    assert {into["exchange"] for node in nodes for into in node.get("inputs", ())} == {"blocking"}


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_python_worker_is_killed(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path, kill: int
) -> None:
    rng, store = random.Random(10 + kill), tmp_path / "store"
    on_flink.pace(0.3)
    running = on_flink.start(*embed(corpus, store, model))
    at_random(on_flink, store, rng)
    os.kill(rng.choice(on_flink.cluster.workers()), signal.SIGKILL)
    undisturbed(on_flink, running, store, calm)


@pytest.mark.parametrize("kill", range(KILLS))
def test_the_submitting_process_is_killed(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path, kill: int
) -> None:
    rng, store = random.Random(20 + kill), tmp_path / "store"
    on_flink.pace(0.3)
    running = on_flink.start(*embed(corpus, store, model))
    at_random(on_flink, store, rng)
    running.process.kill()
    running.process.wait()
    start(embed(corpus, store, model)).ended().failed(1, "is being written by run", "FlinkRunner")
    on_flink.pace(0.0)
    wait(lambda: manifest_of(store) is not None and not on_flink.cluster.running(), "the commit")
    assert the_same(store) == the_same(calm)
    on_flink.run(*embed(corpus, store, model)).ok()
    check_ledger(store, 360, embedded=0, carried=360)


@pytest.mark.parametrize("kill", range(KILLS))
def test_the_job_is_cancelled(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path, kill: int
) -> None:
    rng, store = random.Random(30 + kill), tmp_path / "store"
    on_flink.pace(0.3)
    running = on_flink.start(*embed(corpus, store, model))
    at_random(on_flink, store, rng)
    on_flink.cluster.cancel()
    running.ended().failed(1, "cancelled", "run again")
    assert manifest_of(store) is None
    done = sidecars(store)
    on_flink.pace(0.0)
    on_flink.run(*embed(corpus, store, model)).ok()
    assert units_of(store) == units_of(calm)
    check_ledger(store, 360)
    again = len(on_flink.seen("forwards")) - sidecars(calm) - len(on_flink.seen("loads"))
    assert done >= 2
    assert again <= IN_FLIGHT


def test_a_text_that_crashes_its_worker_ends_the_job(
    on_flink: Flink, model: Path, tmp_path: Path
) -> None:
    texts = sentences(120)
    texts[70] = "CRASH"
    glob = write_parquet(
        tmp_path / "in" / "a.parquet", texts, row_group_size=10, id=[f"i{n}" for n in range(120)]
    )
    store = tmp_path / "store"
    before = on_flink.cluster.jobs()
    line = on_flink.run(*embed(str(glob), store, model)).failed(1, "(a.parquet, 70 to ", "SIGSEGV")
    assert "unit " in line
    (job,) = on_flink.cluster.jobs().keys() - before
    assert len(on_flink.cluster.failures(job)) <= 2
    assert manifest_of(store) is None
    write_parquet(
        glob, [*texts[:70], *texts[71:]], row_group_size=10, id=[f"i{n}" for n in range(119)]
    )
    on_flink.run(*embed(str(glob), store, model)).ok()
    check_ledger(store, 119)


def launcher(folder: Path, *lines: str) -> Path:
    """A worker launcher in Python."""
    path = folder / "launcher"
    path.write_text("\n".join([f"#!{sys.executable}", "import os, sys", *lines, ""]))
    path.chmod(0o755)
    return path


def test_no_launcher_on_a_task_manager(
    on_flink: Flink, corpus: str, model: Path, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere" / "sentence-beam-worker"
    arguments = embed(corpus, tmp_path / "store", model)
    on_flink.run(*arguments, launcher=nowhere).failed(
        1, nowhere, "install sentence-beam", "--environment_config"
    )


def test_the_package_is_missing_for_the_workers_python(
    on_flink: Flink, corpus: str, model: Path, tmp_path: Path
) -> None:
    lines = (
        "from sentence_beam.pipelines.worker import main",
        "os.environ['SENTENCE_BEAM_TEST_HIDE'] = '1'",
        "sys.exit(main())",
    )
    script = launcher(tmp_path, *lines)
    arguments = embed(corpus, tmp_path / "store", model)
    on_flink.run(*arguments, launcher=script).failed(
        1, "no module sentence_beam", "install sentence-beam"
    )


def test_another_beam_on_the_workers(
    on_flink: Flink, corpus: str, model: Path, tmp_path: Path
) -> None:
    begin = "os.execv(sys.executable, [sys.executable, '-m', 'sentence_beam.pipelines.worker', *sys.argv[1:]])"
    script = launcher(tmp_path, "os.environ['SENTENCE_BEAM_TEST_BEAM'] = '2.99.0'", begin)
    arguments = embed(corpus, tmp_path / "store", model)
    on_flink.run(*arguments, launcher=script).failed(
        1, "a worker has another apache-beam", "install one"
    )
    assert len(set(on_flink.cluster.jobs().values()) - {"FINISHED"}) <= 1
