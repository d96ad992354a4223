"""`embed` against other libraries on the same rows: speed, memory, and loss when killed at half.

    python -m benchmarks.peers [--sentences FOLDER] [--rows 30000] [--unit-tokens 26214]
        [--output FILE.json]

Each reads one Parquet file and writes vectors as Parquet, float32, with its defaults, in processes
of its own: `embed`, sentence-transformers' `encode` in one process and with a pool of one process a
core, and Beam's `MLTransform` with its Hugging Face handler on the in-process runner. What a run of
64 rows takes (imports, the model) is taken off the rates. Then each is killed when half of its
processor time is spent, readable vectors are counted, and if there are any, the same command runs
again. `embed` loses units that are not finished: they have a tenth of their default size here.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import SENTENCES, files_of_texts, report

FEW = 64
WAYS = ("embed", "encode", "encode, pool", "MLTransform")
LOOK_EVERY = 0.2  # seconds


@dataclass(frozen=True)
class Took:
    """The cost of a run in its own process: processor seconds, seconds, peak MB in all."""

    cpu: float
    wall: float
    peak: float


def run(way: str, file: str, output: str, unit_tokens: int) -> None:
    """Embed the rows of a file in one way."""
    if way == "embed":
        from sentence_beam.pipelines import embed

        flags = [
            "--input",
            file,
            "--store",
            output,
            "--dtype",
            "float32",
            "--unit-tokens",
            str(unit_tokens),
        ]
        assert embed.main(flags) == 0
        return
    from sentence_beam.transforms.space import resolve_model

    model = str(resolve_model("minilm").root)
    if way == "MLTransform":
        with_ml_transform(model, file, output)
    else:
        with_sentence_transformers(model, file, output, pool=way == "encode, pool")


def with_sentence_transformers(model: str, file: str, output: str, pool: bool) -> None:
    """Encode all texts by `encode`, then write one file."""
    from sentence_transformers import SentenceTransformer

    texts = pq.read_table(file)["text"].to_pylist()
    encoder = SentenceTransformer(model, device="cpu")
    if pool:
        processes = encoder.start_multi_process_pool(["cpu"] * (os.cpu_count() or 1))
        vectors = encoder.encode(texts, pool=processes)
        encoder.stop_multi_process_pool(processes)
    else:
        vectors = encoder.encode(texts)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"embedding": column}), Path(output) / "vectors.parquet")


def with_ml_transform(model: str, file: str, output: str) -> None:
    """A pipeline of Beam's own parts."""
    import apache_beam as beam
    from apache_beam.ml.transforms.base import MLTransform
    from apache_beam.ml.transforms.embeddings.huggingface import SentenceTransformerEmbeddings

    artifacts = tempfile.mkdtemp(dir=output)  # it refuses a place that has some
    embeddings = SentenceTransformerEmbeddings(model_name=model, columns=["text"])
    schema = pa.schema([("text", pa.list_(pa.float32()))])
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(file)
        found = rows | MLTransform(write_artifact_location=artifacts).with_transform(embeddings)
        _ = found | beam.io.WriteToParquet(f"{output}/vectors", schema, file_name_suffix=".parquet")


def start(way: str, file: Path, output: Path, unit_tokens: int) -> "subprocess.Popen[bytes]":
    """A process of one run, the first of a session, so that all its processes are known."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--run",
        way,
        "--file",
        str(file),
        "--into",
        str(output),
    ]
    command += ["--unit-tokens", str(unit_tokens)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)


def look(session: int) -> tuple[float, float]:
    """MB that the processes of a session hold together, what they share counted once, and their
    processor seconds.
    """
    held, ticks = 0, 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # proc(5), from its third on
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
                lines = (folder / "smaps_rollup").read_text().splitlines()
                held += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):  # it has ended meanwhile
            continue
    return held / 1024, ticks / os.sysconf("SC_CLK_TCK")


def measure(way: str, file: Path, output: Path, unit_tokens: int) -> Took:
    """Processor seconds, wall seconds and peak memory in MB of one run in a process of its own."""
    before, began, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0.0
    process = start(way, file, output, unit_tokens)
    while process.poll() is None:
        peak = max(peak, look(process.pid)[0])
        time.sleep(LOOK_EVERY)
    assert process.returncode == 0, f"{way} ended with {process.returncode}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(cpu, time.perf_counter() - began, peak)


def kill_after(way: str, cpu: float, file: Path, output: Path, unit_tokens: int) -> None:
    """A run that is killed, with all its processes, after so many processor seconds."""
    process = start(way, file, output, unit_tokens)
    while process.poll() is None and look(process.pid)[1] < cpu:
        time.sleep(LOOK_EVERY)
    assert process.poll() is None, (
        f"{way} ended before half of its processor time was spent: take more --rows"
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def rows_in(output: Path) -> int:
    """Vectors in finished files."""
    files = [*output.glob("vectors*.parquet"), *output.glob("embeddings/*.parquet")]
    return sum(pq.ParquetFile(path).metadata.num_rows for path in files)


def all_runs(way: str, files: dict[int, Path], where: Path, unit_tokens: int) -> dict[str, float]:
    """The figures of one way."""
    few, rows = files
    outputs = {name: where / f"{way} {name}" for name in ("few", "all", "killed")}
    for output in outputs.values():
        output.mkdir()
    small = measure(way, files[few], outputs["few"], unit_tokens)
    whole = measure(way, files[rows], outputs["all"], unit_tokens)
    assert rows_in(outputs["all"]) == rows, way
    kill_after(way, (small.cpu + whole.cpu) / 2, files[rows], outputs["killed"], unit_tokens)
    kept = rows_in(outputs["killed"])
    again = measure(way, files[rows], outputs["killed"], unit_tokens).cpu if kept else whole.cpu
    return {
        "rows a second of processor time": (rows - few) / (whole.cpu - small.cpu),
        "rows a second": (rows - few) / (whole.wall - small.wall),
        "start, processor seconds": small.cpu,
        "peak MB": whole.peak,
        "rows kept when killed at half": kept,
        "processor time of the same command again over a whole run": (
            (again - small.cpu) / (whole.cpu - small.cpu)
        ),
    }


def main() -> None:
    """Run each program over few rows and over all; print its figures, write them on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=Path, help=SENTENCES)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument(
        "--unit-tokens", type=int, default=26_214, help="of `embed`, which has 262,144 by default"
    )
    parser.add_argument("--output")
    parser.add_argument("--run", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run(args.run, args.file, args.into, args.unit_tokens)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = files_of_texts(args.sentences, (FEW, args.rows), Path(folder))
        found = {way: all_runs(way, files, Path(folder), args.unit_tokens) for way in WAYS}
    rows = [
        (f"{way}: {what}", f"{value:,.2f}", "")
        for way, figures in found.items()
        for what, value in figures.items()
    ]
    report(f"peers, {args.rows:,} sentences, MiniLM-L6", rows, args.output, {"ways": found})


if __name__ == "__main__":
    main()
