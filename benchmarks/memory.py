"""Peak memory of `embed` over ten times the corpus, and what holds it.

    python -m benchmarks.memory [--sentences FOLDER] [--output FILE.json]

FOLDER holds STS sets (`*.tsv`). Two processes of their own: about 10 units, and ten times as many
of the same size. A third one imports and loads what `embed` does, in its order, and says after each
step how much memory is resident.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import SENTENCES, real_texts, report
from sentence_beam.transforms.store import open_store

UNIT_TOKENS = 20_000
UNITS_PER_FILE = 5
RUN = (
    "import resource, sys; from sentence_beam.pipelines import embed;"
    "code = embed.main(sys.argv[1:]);"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(code)"
)
TEXTS = 2000
STEPS = {
    "Python, Arrow and how a store is read": "pass",
    "Beam and the pipeline": "import sentence_beam.pipelines.embed, sentence_beam.transforms.beam\n"
    "from apache_beam.runners.portability.fn_api_runner import fn_runner",
    "torch": "import torch, sentence_beam.transforms.encoder",
    "MiniLM and its tokenizer": "encoder = sentence_beam.transforms.encoder.Encoder.load('minilm')",
    f"{TEXTS:,} texts in the forward pass": "encoder.encode(texts)",
}


def write_corpus(texts: list[str], units: int, folder: Path) -> None:
    """Files of five units each, no text twice."""
    folder.mkdir()
    for number in range(units // UNITS_PER_FILE):
        rows: list[str] = []
        while sum(len(t) // 4 + 2 for t in rows) < UNITS_PER_FILE * UNIT_TOKENS * 0.95:
            start = (number * 997 + len(rows)) % (len(texts) - 500)
            rows += [f"{number} {text}" for text in texts[start : start + 500]]
        pq.write_table(
            pa.table({"text": rows}), folder / f"{number:04d}.parquet", row_group_size=500
        )


def peak_memory(texts: list[str], units: int, where: Path) -> tuple[float, int]:
    """Peak resident MB of an `embed` process over about so many units, and how many it made."""
    folder, store = where / f"in{units}", where / f"store{units}"
    write_corpus(texts, units, folder)
    flags = [
        "--input",
        f"{folder}/*.parquet",
        "--store",
        str(store),
        "--unit-tokens",
        str(UNIT_TOKENS),
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *flags], capture_output=True, text=True, check=True
    )
    made = open_store(str(store)).manifest.units.rows
    return int(done.stdout.splitlines()[-1]) / 1024, made


def resident() -> float:
    """Resident memory of this process in MB."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    raise ValueError("/proc/self/smaps_rollup names no Rss")


def say_steps() -> None:
    """Take the steps of STEPS, texts from standard input, and print the resident MB after each."""
    names: dict[str, object] = {"texts": json.load(sys.stdin)}
    for code in STEPS.values():
        exec(code, names)
        print(resident(), flush=True)


def who_holds_what(texts: list[str]) -> list[tuple[str, str, str]]:
    """Return a row for each step of STEPS: what it adds to the resident memory, and the sum."""
    code = "from benchmarks.memory import say_steps; say_steps()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(texts[:TEXTS]),
        capture_output=True,
        text=True,
        check=True,
    )
    sums = [0.0, *map(float, done.stdout.splitlines())]
    return [
        (name, f"{after - before:,.0f} MB, {after:,.0f} in all", "")
        for name, before, after in zip(STEPS, sums, sums[1:], strict=False)
    ]


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--output")
    args = p.parse_args()
    texts = real_texts(args.sentences, 30_000)
    with tempfile.TemporaryDirectory() as folder:
        small, large = (peak_memory(texts, units, Path(folder)) for units in (10, 100))
    rows = [("peak memory, ten times the corpus", f"{large[0] / small[0]:.2f}x", "bar 1.1x")]
    rows += [(f"{made} units", f"{peak:,.0f} MB", "bar 700 MB") for peak, made in (small, large)]
    rows += who_holds_what(texts)
    report(
        f"embed, units of {UNIT_TOKENS:,} tokens, MiniLM-L6",
        rows,
        args.output,
        {"mb and units": [small, large]},
    )


if __name__ == "__main__":
    main()
