"""The nightly DAG, read and run by Airflow itself: SENTENCE_BEAM_AIRFLOW names the Python of an
environment with it.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

DAG = (
    Path(__file__).resolve().parents[2]
    / "deploy"
    / "nightly"
    / "airflow"
    / "sentence_beam_nightly.py"
)
PYTHON = "SENTENCE_BEAM_AIRFLOW"
EMBED = "[embed][--input][/data/reviews/*.parquet][--store][/data/reviews-store][--id-column][review_id][--text-column]"
EMBED += "[body][--index][auto][--max-rejects][0.001]"
VERIFY = "[verify][--store][/data/reviews-store]"
VACUUM = "[vacuum][--store][/data/reviews-store][--keep][14][--older-than][7d]"
# What Airflow makes of the file, as JSON on the last line; with a night it runs that to its end.
READ = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
dag = bag.dags["sentence_beam_nightly"]
found = {"order": [task.task_id for task in dag.topological_sort()], "schedule": dag.schedule,
         "catchup": dag.catchup, "at_once": dag.max_active_runs, "retries": [task.retries for task in dag.tasks]}
if len(sys.argv) > 2:
    tasks = dag.test().get_task_instances()
    found = {task.task_id: [str(task.state), task.try_number] for task in tasks}
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of an Airflow with a database of its own; skipped where there is none."""
    python = os.environ.get(PYTHON, "")
    if not os.access(python, os.X_OK):
        pytest.skip(
            f"{PYTHON} does not name the Python of an environment with apache-airflow ({python or 'not set'})"
        )
    home = tmp_path_factory.mktemp("airflow")
    run = {**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    subprocess.run(
        [python, "-m", "airflow", "db", "migrate"], env=run, check=True, capture_output=True
    )
    return run


def said_of(
    airflow: Mapping[str, str], folder: Path, *night: str, **environment: str
) -> dict[str, object]:
    """What Airflow says of the DAG in a folder."""
    run = {**airflow, "AIRFLOW__CORE__DAGS_FOLDER": str(folder), **environment}
    command = [airflow[PYTHON], "-c", READ, str(folder), *night]
    ended = subprocess.run(command, env=run, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_airflow_reads_the_dag(airflow: Mapping[str, str]) -> None:
    assert said_of(airflow, DAG.parent) == {
        "order": ["embed", "verify", "vacuum"],
        "schedule": "0 2 * * *",
        "catchup": False,
        "at_once": 1,
        "retries": [1, 1, 1],
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fails", "status", "states", "calls"),
    [
        ("", 0, [["success", 1], ["success", 1], ["success", 1]], [EMBED, VERIFY, VACUUM]),
        (
            "embed",
            3,
            [["failed", 1], ["upstream_failed", 0], ["upstream_failed", 0]],
            [EMBED, "alert 3"],
        ),
        (
            "verify",
            1,
            [["success", 1], ["failed", 2], ["upstream_failed", 0]],
            [EMBED, VERIFY, VERIFY, "alert 1"],
        ),
    ],
)
def test_airflow_runs_a_night(
    airflow: Mapping[str, str],
    tmp_path: Path,
    fails: str,
    status: int,
    states: list[object],
    calls: list[str],
) -> None:
    """The DAG with a command and an alert that write down how they were called, and no pause before
    another try.
    """
    log, dags = tmp_path / "log", tmp_path / "dags"
    failing = f'[ "$1" != "{fails}" ] || exit {status}'
    scripts = {
        "sentence-beam": f'(printf "[%s]" "$@"; echo) >> {log}\n{failing}',
        "alert.sh": f'echo "alert $1" >> {log}',
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    text = DAG.read_text().replace(
        "/opt/sentence-beam/.venv/bin/sentence-beam", f"{tmp_path}/sentence-beam"
    )
    text = text.replace("/opt/sentence-beam/deploy/nightly/alert.sh", f"{tmp_path}/alert.sh")
    dags.mkdir()
    (dags / DAG.name).write_text(text.replace("timedelta(minutes=10)", "timedelta(seconds=1)"))
    said = said_of(airflow, dags, "night")
    assert [said[name] for name in ("embed", "verify", "vacuum")] == states
    assert log.read_text().splitlines() == calls
