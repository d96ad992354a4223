"""Everything but the forward pass: rows read, hashed and written by `embed` with a stub for the
encoder.

    python -m benchmarks.ingest [--rows 1000000 10000000] [--dim 8] [--folder /dev/shm]
        [--output FILE.json]

Parquet files of 100,000 rows of 100 characters with an id column. The time of a run over no row is
taken off and printed beside. Vectors written: shards of 768 components made through the store by
two threads, beside what pyarrow, SHA-256 and one write of the same vectors take, which every shard
has to pay.
"""

import argparse
import contextlib
import hashlib
import io
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import interleaved, median_ratio, report
from benchmarks.stub import Stub, stub_encoder, tiny_model
from sentence_beam.pipelines import embed
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.base.arrow_arrays import make_vector_column
from sentence_beam.transforms.corpus import UnitRows
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.steps.embed.inputs import make_vectors
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

CHARACTERS = 100
ROWS_PER_FILE = 100_000
ROWS_PER_GROUP = 10_000
WORDS = [f"word{number:04d}" for number in range(5000)]
WRITE_DIM = 768
WRITE_ROWS = 8192
WRITES = 40


def write_corpus(rows: int, folder: Path) -> None:
    """Files of rows of 100 characters, all different."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for start in range(0, rows, ROWS_PER_FILE):
        count = min(ROWS_PER_FILE, rows - start)
        picks = rng.integers(0, len(WORDS), (count, 12))
        texts = [
            f"{start + row} {' '.join(WORDS[i] for i in picked)}"[:CHARACTERS].ljust(
                CHARACTERS, "."
            )
            for row, picked in enumerate(picks.tolist())
        ]
        table = pa.table({"id": [f"id{start + row}" for row in range(count)], "text": texts})
        pq.write_table(
            table, folder / f"{start // ROWS_PER_FILE:05d}.parquet", row_group_size=ROWS_PER_GROUP
        )


def ingest(folder: Path, store: Path, model: Path) -> tuple[float, float]:
    """Wall and processor seconds of one `embed` with the stub, whose store is removed again."""
    arguments = [
        "--input",
        f"{folder}/*.parquet",
        "--store",
        str(store),
        "--id-column",
        "id",
        "--dtype",
        "float32",
    ]
    wall, cpu = time.perf_counter(), time.process_time()
    with stub_encoder(), contextlib.redirect_stdout(io.StringIO()):
        code = embed.main([*arguments, "--model", str(model)])
    took = time.perf_counter() - wall, time.process_time() - cpu
    assert code == 0, f"embed ended with {code}"
    shutil.rmtree(store)
    return took


def alone(rows: int, dim: int, where: Path) -> None:
    """Ingest and print seconds, processor seconds and peak memory in MB: what one process of its
    own is asked for.
    """
    command.quiet_logs()
    model = tiny_model(where / f"model{dim}", dim)
    write_corpus(rows, where / "in")
    write_corpus(0, where / "none")
    pq.write_table(
        pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}),
        where / "none" / "a.parquet",
    )
    ingest(where / "none", where / "store", model)
    empty = ingest(where / "none", where / "store", model)
    took = ingest(where / "in", where / "store", model)
    print(*took, *empty, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measured(rows: int, dim: int, where: str) -> list[float]:
    """Run `alone` in a process of its own and return the figures that it prints."""
    with tempfile.TemporaryDirectory(dir=where) as folder:
        arguments = ["--alone", str(rows), str(dim), folder]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.ingest", *arguments], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()[-5:]]


def written(where: str) -> dict[str, list[float]]:
    """Seconds that two threads take to write the units' vectors as shards, and to do what cannot be
    left out of that.

    In turn, three times, each into memory that the one before has just left: memory that a virtual
    machine has to ask its host for first costs more than all the rest.
    """
    with tempfile.TemporaryDirectory(dir=where) as folder:
        space = Encoder.load(
            str(tiny_model(Path(folder) / "model", WRITE_DIM)), dtype="float32"
        ).space
        units = [_unit(number) for number in range(WRITES)]
        vectors = make_vectors(*_made(Stub(space), units[0].rows.texts))
        works = {
            "shards": partial(_shards, space, units, vectors),
            "least": partial(_least, vectors.embedding),
        }
        for work in works.values():
            work(f"{folder}/out")
        return interleaved(
            {name: partial(work, f"{folder}/out") for name, work in works.items()}, 3
        )


def _shards(space: Space, units: list[PreparedUnit], vectors: Vectors, folder: str) -> None:
    store = UnitStore(folder, space)
    with ThreadPoolExecutor(2) as pool:
        list(
            pool.map(
                lambda unit: store.write(unit, vectors, [], UnitCounts(WRITE_ROWS, 0, 0)), units
            )
        )
    shutil.rmtree(folder)


def _least(embedding: np.ndarray, folder: str) -> None:
    """Parquet with page checksums in memory, SHA-256, a file."""
    Path(folder).mkdir()
    table = pa.table({"embedding": make_vector_column(embedding)})

    def write(number: int) -> None:
        sink = io.BytesIO()
        pq.write_table(
            table, sink, use_dictionary=False, compression="none", write_page_checksum=True
        )
        hashlib.sha256(sink.getbuffer()).hexdigest()
        Path(folder, str(number)).write_bytes(sink.getbuffer())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(WRITES)))
    shutil.rmtree(folder)


def _made(stub: Stub, texts: list[str]) -> tuple[Any, Any]:
    tokenized = stub.tokenize(texts)
    return tokenized, stub.embed(tokenized)


def _unit(number: int) -> PreparedUnit:
    texts = [f"row {row} of unit {number}" for row in range(WRITE_ROWS)]
    rows = UnitRows(
        f"{number:016x}-{0:012d}", None, 0, None, texts, texts, list(range(WRITE_ROWS)), None, []
    )
    return PreparedUnit(rows, row_hashes(texts), f"{number:016x}")


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000], help="one size after another"
    )
    p.add_argument("--dim", type=int, default=8)
    p.add_argument("--folder", default="/dev/shm")
    p.add_argument("--output")
    p.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.alone:
        return alone(int(args.alone[0]), int(args.alone[1]), Path(args.alone[2]))
    took = written(args.folder)
    speed = WRITES * WRITE_ROWS * WRITE_DIM * 4 / statistics.median(took["shards"]) / 1e9
    share = f"{median_ratio(took['shards'], took['least']):.2f}x the least"
    table, data = (
        [("vectors written, two threads", f"{speed:.2f} GB/s", f"bar 1 GB/s; {share}")],
        {"written": took},
    )
    for rows in args.rows:
        wall, cpu, empty, _, peak = data[str(rows)] = measured(rows, args.dim, args.folder)
        speed = f"{rows / (wall - empty):,.0f} rows/s"
        table.append(
            (
                f"{rows:,} rows",
                speed,
                f"bar 500,000; {wall:.1f} s, CPU {cpu:.1f} s, an empty run {empty:.1f} s",
            )
        )
        table.append((f"{rows:,} rows: peak memory", f"{peak:,.0f} MB", ""))
    report(f"ingest without a model, {args.dim} components", table, args.output, data)


if __name__ == "__main__":
    main()
