"""`EmbedRows` against `embed` on the same rows: rows a second of processor time, in a process each.

    python -m benchmarks.rows [--sentences FOLDER] [--rows 30000] [--dtype float32]
        [--output FILE.json]

Both read one Parquet file; `embed` writes its shards, `EmbedRows` gives dicts to a step that counts
them. What a run of 64 rows takes (imports, the model, Beam's graph) is taken off both.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import SENTENCES, files_of_texts

FEW = 64
WAYS = ("embed", "EmbedRows")


def run(way: str, file: str, dtype: str) -> None:
    """Embed the rows of a file."""
    if way == "embed":
        from sentence_beam.pipelines import embed

        store = tempfile.mkdtemp(dir=Path(file).parent)
        assert embed.main(["--input", file, "--store", store, "--dtype", dtype]) == 0
        return
    import apache_beam as beam

    from sentence_beam.transforms.beam import EmbedRows

    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(file)
        _ = (
            (rows | EmbedRows(dtype=dtype)).rows
            | beam.Map(lambda row: row["tokens"])
            | beam.CombineGlobally(sum)
        )


def cpu_seconds(way: str, file: Path, dtype: str) -> float:
    """Processor time of a process of its own, its threads and children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-m",
        "benchmarks.rows",
        "--run",
        way,
        "--file",
        str(file),
        "--dtype",
        dtype,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Take the processor time of each way for few rows and for all, print and write what lies
    between.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=Path, help=SENTENCES)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--run", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run(args.run, args.file, args.dtype)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = files_of_texts(args.sentences, (FEW, args.rows), Path(folder))
        took = {
            way: {count: cpu_seconds(way, file, args.dtype) for count, file in files.items()}
            for way in WAYS
        }
    rates = {
        way: (args.rows - FEW) / (times[args.rows] - times[FEW]) for way, times in took.items()
    }
    table = [
        [way, f"{took[way][FEW]:.1f}", f"{took[way][args.rows]:.1f}", f"{rates[way]:.0f}"]
        for way in WAYS
    ]
    ratio = rates["EmbedRows"] / rates["embed"]
    for line in table:
        print(
            "{:10} {:>6} s for few, {:>7} s for all, {:>6} rows a second of processor time".format(
                *line
            )
        )
    print(f"EmbedRows over embed: {ratio:.2f}x")
    if args.output:
        import json

        args.output.write_text(
            json.dumps({"cpu_seconds": took, "rows_a_second": rates, "ratio": ratio})
        )


if __name__ == "__main__":
    main()
