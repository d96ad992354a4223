"""Time of one `embed` in one process, in two of Beam's local processes and on two Flink
TaskManagers, on one machine.

    python -m benchmarks.engines [--sentences FOLDER] [--rows 4000] [--runs 3] [--output FILE.json]

FOLDER holds STS sets (`*.tsv`); SENTENCE_BEAM_FLINK_JAR names Beam's Flink job server. Every
process has one thread, so that two processes have two cores and one has one; `one process, two
threads` is what a person runs on such a machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import SENTENCES, interleaved, real_texts, report
from tests.helpers import flink

ROOT = Path(__file__).resolve().parents[1]
UNIT_TOKENS = 8_000
TWO = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


def write_corpus(rows: list[str], folder: Path) -> str:
    """Four files of many units each."""
    folder.mkdir()
    for number in range(4):
        pq.write_table(
            pa.table({"text": rows[number::4]}), folder / f"{number}.parquet", row_group_size=200
        )
    return str(folder / "*.parquet")


def embed(glob: str, store: Path, *flags: str, threads: int = 1) -> None:
    """Run `embed` into a new store, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "sentence_beam",
        "embed",
        "--input",
        glob,
        "--store",
        f"{store}",
        *flags,
    ]
    command += ["--unit-tokens", str(UNIT_TOKENS), "--dtype", "float32"]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, check=True, capture_output=True)


def measure(glob: str, where: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of every way, from the command's start to its end."""
    stores = (where / f"store{number}" for number in range(100))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    (where / "flink").mkdir()
    with flink.cluster(where / "flink", env) as cluster:
        there = (
            "--runner=FlinkRunner",
            f"--flink_master={cluster.address}",
            "--environment_type=PROCESS",
            f"--flink_job_server_jar={os.environ['SENTENCE_BEAM_FLINK_JAR']}",
        )
        works = {
            "one process, one thread": lambda: embed(glob, next(stores)),
            "one process, two threads": lambda: embed(glob, next(stores), threads=2),
            "multi_processing, two workers": lambda: embed(glob, next(stores), *TWO),
            "Flink, two TaskManagers": lambda: embed(glob, next(stores), *there),
        }
        return interleaved(works, runs)


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=4000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args()
    reason = flink.missing()
    if reason:
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder:
        glob = write_corpus(real_texts(args.sentences, args.rows), Path(folder) / "in")
        took = measure(glob, Path(folder), args.runs)
    rows = [(name, f"{statistics.median(seconds):.1f} s", "") for name, seconds in took.items()]
    report(
        f"embed of {args.rows:,} rows, MiniLM-L6, float32, by engine",
        rows,
        args.output,
        {"seconds": took},
    )


if __name__ == "__main__":
    main()
