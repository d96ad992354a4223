"""`embed` end to end against sentence-transformers, the bare forward, a plain loop, and its own memory.

    python -m benchmarks.pipeline --sentences FOLDER [--rows 30000] [--runs 3] [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2); docstrings of the standard library fill up to --rows.
One process, in turn: every ratio is the median over --runs pairs.
"""

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from benchmarks.common import interleaved, median_ratio, report, seconds, sentences
from deploy.demo.docstrings import docstrings
from pipelines import embed, options
from transforms.encoder import Encoder
from transforms.space import resolve_model
from transforms.space.dtypes import native_dtype
from transforms.store import open_store
from transforms.store.corpus import Columns, match_inputs, plan_file, read_span

SHAPES = [(tokens // length, length) for length in (8, 16, 32, 64, 128) for tokens in (1024, 2048, 4096, 8192)]
UNIT_TOKENS = 262_144


def corpus(folder: Path, rows: int, where: Path) -> list[str]:
    """Write the texts to one Parquet file and return them."""
    texts = sentences(folder, rows)
    more = (text for _, text in docstrings())
    seen = set(texts)
    while len(texts) < rows:
        text = next(more)
        if text not in seen:
            texts.append(text)
            seen.add(text)
    pq.write_table(pa.table({"text": texts}), where / "corpus.parquet", row_group_size=5000)
    return texts


def embed_once(where: Path, dtype: str, *flags: str) -> str:
    """Run `embed` into a new store of its own; returns the store."""
    store = tempfile.mkdtemp(dir=where)
    code = embed.main(["--input", f"{where}/corpus.parquet", "--output", store, "--dtype", dtype, *flags])
    assert code == 0, f"embed ended with {code}"
    return store


def plain_loop(encoder: Encoder, where: Path) -> None:
    """Read the same units and encode them, without Beam and without writing."""
    (file,) = match_inputs(f"{where}/corpus.parquet")
    for span in plan_file(file, "text", UNIT_TOKENS):
        for unit in read_span(span, Columns(), UNIT_TOKENS):
            encoder.encode(unit.texts)


def best_forward(dtype: str, budget: float = 1.5) -> tuple[float, tuple[int, int]]:
    """Tokens a second of the bare model at its best batch shape, without padding."""
    folder = resolve_model("minilm").folder
    model = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    best = (0.0, (0, 0))
    with torch.inference_mode():
        for batch, length in SHAPES:
            ids = torch.randint(1000, 20000, (batch, length))
            model(ids)
            times = []
            while sum(times) < budget:
                times.append(seconds(partial(model, ids)))
            best = max(best, (batch * length / statistics.median(times), (batch, length)))
    return best


def peak_memory(where: Path, units: int, unit_tokens: int) -> float:
    """Peak resident MB of an `embed` process over so many units."""
    (where / "memory").mkdir(exist_ok=True)
    texts = pq.read_table(where / "corpus.parquet").column("text").to_pylist()
    for path in (where / "memory").glob("*"):
        path.unlink()
    per_file = 5
    for number in range(units // per_file):
        rows: list[str] = []
        while sum(len(t) // 4 + 2 for t in rows) < per_file * unit_tokens * 0.95:
            start = (number * 997 + len(rows)) % (len(texts) - 500)
            rows += [f"{number} {t}" for t in texts[start : start + 500]]
        pq.write_table(pa.table({"text": rows}), where / "memory" / f"{number:04d}.parquet", row_group_size=500)
    store = tempfile.mkdtemp(dir=where)
    code = (
        "import resource, sys; from pipelines import embed; code = embed.main(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(code)"
    )
    flags = ["--input", f"{where}/memory/*.parquet", "--output", store, "--unit-tokens", str(unit_tokens)]
    done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, check=True)
    planned = len(open_store(store).manifest.units)
    assert abs(planned - units) <= units // 4, f"{planned} units instead of {units}"
    return int(done.stdout.splitlines()[-1]) / 1024


def measure(where: Path, texts: list[str], runs: int) -> tuple[list[tuple[str, str, str]], dict[str, object]]:
    """All rows of the table."""
    peer = SentenceTransformer(str(resolve_model("minilm").root), device="cpu")
    dtypes = ["float32"] + (["bfloat16"] if native_dtype("cpu") == "bfloat16" else [])
    works = {"sentence-transformers": lambda: peer.encode(texts)}
    for dtype in dtypes:
        works[f"embed {dtype}"] = partial(embed_once, where, dtype)
        works[f"loop {dtype}"] = partial(plain_loop, Encoder.load("minilm", dtype=dtype), where)
    for work in works.values():  # warm up: libraries, page cache, thread pools
        work()
    took = interleaved(works, runs)
    rows, data = [], {"seconds": took}
    for dtype in dtypes:
        tokens = open_store(embed_once(where, dtype)).manifest.data["tokens"]
        speed = tokens["real"] / statistics.median(took[f"embed {dtype}"])
        bare, shape = best_forward(dtype)
        faster = median_ratio(took["sentence-transformers"], took[f"embed {dtype}"])
        bar = "1.6x" if dtype == "float32" else "3x"
        rows += [
            (f"embed {dtype} against SentenceTransformer.encode", f"{faster:.2f}x", f"bar {bar}"),
            (f"embed {dtype} against the bare forward at {shape[0]}x{shape[1]}", f"{speed / bare:.2f}", "bar 0.85"),
            (f"embed {dtype}", f"{speed:,.0f} tokens/s", f"bare forward {bare:,.0f}"),
            (
                f"embed {dtype} over a plain loop",
                f"{median_ratio(took[f'embed {dtype}'], took[f'loop {dtype}']):.3f}x",
                "bar 1.05x",
            ),
        ]
        data[f"tokens {dtype}"] = tokens
    padding = 100 * (tokens["padded"] / tokens["real"] - 1)
    return [*rows, ("padding", f"{padding:.2f} %", "bar 4 %")], data


def main() -> None:
    """Measure and print."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sentences", type=Path, required=True)
    p.add_argument("--rows", type=int, default=30_000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args()
    options.quiet_logs()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        rows, data = measure(where, corpus(args.sentences, args.rows, where), args.runs)
        small, large = (peak_memory(where, units, 20_000) for units in (10, 100))
    rows.append(
        ("peak memory, 100 units over 10", f"{large / small:.2f}x", f"bar 1.1x ({small:,.0f} MB, {large:,.0f} MB)")
    )
    report(f"embed, {args.rows:,} sentences, MiniLM-L6", rows, args.output, data)


if __name__ == "__main__":
    main()
