"""Every night: embed what changed, check the store, remove what no kept snapshot names. For Airflow
3.
"""

import subprocess
from datetime import datetime, timedelta

from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

COMMAND = "/opt/sentence-beam/.venv/bin/sentence-beam"
ALERT = "/opt/sentence-beam/deploy/nightly/alert.sh"
INPUT = "/data/reviews/*.parquet"
STORE = "/data/reviews-store"
EMBED_OPTIONS = [
    "--id-column",
    "review_id",
    "--text-column",
    "body",
    "--index",
    "auto",
    "--max-rejects",
    "0.001",
]
KEEP = "14"
KEEP_DAYS = "7d"
# a wrong option, a gate (rejected rows, a model that moved) and lost rows are the same at the
# second try
NOT_AGAIN = (2, 3, 4)


def run(*arguments: str) -> None:
    """Run a command; its one line of error becomes the task's, and its exit status decides about
    another try.
    """
    ended = subprocess.run([COMMAND, *arguments], stderr=subprocess.PIPE, text=True, check=False)
    if ended.returncode == 0:
        return
    get_current_context()["ti"].xcom_push(key="status", value=ended.returncode)
    error = AirflowFailException if ended.returncode in NOT_AGAIN else AirflowException
    raise error(f"exit status {ended.returncode}: {ended.stderr.strip()}")


def alert(context) -> None:
    """Report the meaning of the exit status to the place of alerts; a killed task has no status."""
    status = context["ti"].xcom_pull(task_ids=context["ti"].task_id, key="status") or 137
    subprocess.run([ALERT, str(status)], check=False)


@dag(
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=10), "on_failure_callback": alert},
)
def sentence_beam_nightly():
    @task
    def embed() -> None:
        run("embed", "--input", INPUT, "--store", STORE, *EMBED_OPTIONS)

    @task
    def verify() -> None:
        run("verify", "--store", STORE)

    @task
    def vacuum() -> None:
        run("vacuum", "--store", STORE, "--keep", KEEP, "--older-than", KEEP_DAYS)

    embed() >> verify() >> vacuum()


sentence_beam_nightly()
