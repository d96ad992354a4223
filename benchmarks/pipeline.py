"""`embed` end to end against sentence-transformers, the bare forward, and a plain loop.

    python -m benchmarks.pipeline [--sentences FOLDER] [--rows 30000] [--runs 3]
        [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2); docstrings of installed packages fill
up to --rows. One process, in turn: every ratio is the median over --runs pairs.
"""

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from benchmarks.common import SENTENCES, interleaved, median_ratio, real_texts, report, seconds
from sentence_beam.pipelines import embed
from sentence_beam.pipelines.common import beam_flags, command
from sentence_beam.transforms.corpus import Columns, match_inputs, plan_file, read_span
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.dtypes import native_dtype
from sentence_beam.transforms.steps.options.embed import PlanOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.steps.plan.estimate import predict
from sentence_beam.transforms.store import open_store

SHAPES = [
    (tokens // length, length)
    for length in (8, 16, 32, 64, 128)
    for tokens in (1024, 2048, 4096, 8192)
]
BATCHES = (16, 32, 64, 128, 256)
UNIT_TOKENS = 262_144
WARM_UP = 1000  # rows
BARS = {"float32": "1.6x", "bfloat16": "3x"}


def corpus(folder: Path | None, rows: int, where: Path) -> list[str]:
    """Write the texts to one Parquet file and return them."""
    texts = real_texts(folder, rows)
    pq.write_table(pa.table({"text": texts}), where / "corpus.parquet", row_group_size=5000)
    return texts


def embed_once(where: Path, dtype: str, *flags: str) -> str:
    """Run `embed` into a new store of its own; returns the store."""
    store = tempfile.mkdtemp(dir=where)
    code = embed.main(
        ["--input", f"{where}/corpus.parquet", "--store", store, "--dtype", dtype, *flags]
    )
    assert code == 0, f"embed ended with {code}"
    return store


def predicted(where: Path, dtype: str) -> float:
    """Seconds that `plan` says a run would take."""
    args, _ = beam_flags.parse(
        embed.parser("plan"),
        ["--input", f"{where}/corpus.parquet", "--store", f"{where}/none", "--dtype", dtype],
    )
    resolved = resolve_run(PlanOptions(**vars(args)), None, "run", local=True)
    found = predict(resolved)
    assert found.pace is not None
    return found.seconds


def plain_loop(encoder: Encoder, where: Path) -> None:
    """Read the same units and encode them, without Beam and without writing."""
    (file,) = match_inputs(f"{where}/corpus.parquet")
    for span in plan_file(file, "text", UNIT_TOKENS):
        for unit in read_span(span, Columns(), UNIT_TOKENS):
            encoder.encode(unit.texts)


def best_batch(dtype: str, texts: list[str], works: dict[str, Callable[[], object]]) -> int:
    """Add sentence-transformers in a dtype to the works, at its best batch size; return that."""
    peer = SentenceTransformer(
        str(resolve_model("minilm").root),
        device="cpu",
        model_kwargs={"dtype": getattr(torch, dtype)},
    )
    some = texts[:WARM_UP]
    peer.encode(some)
    took = {batch: seconds(partial(peer.encode, some, batch_size=batch)) for batch in BATCHES}
    batch = min(took, key=took.__getitem__)
    works["alike"] = partial(peer.encode, texts, batch_size=batch)
    return batch


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


def measure(
    where: Path, texts: list[str], runs: int
) -> tuple[list[tuple[str, str, str]], dict[str, object]]:
    """Measure all rows of the table."""
    peer = SentenceTransformer(str(resolve_model("minilm").root), device="cpu")
    peer.encode(texts[:WARM_UP])
    dtypes = list(dict.fromkeys(["float32", native_dtype("cpu")]))
    works, stores, plans = (
        {"sentence-transformers": lambda: peer.encode(texts)},
        {},
        {dtype: [] for dtype in dtypes},
    )
    batch = best_batch(dtypes[-1], texts, works)
    for dtype in dtypes:
        encoder = Encoder.load("minilm", dtype=dtype)
        encoder.encode(texts[:WARM_UP])
        embed_once(where, dtype, "--limit", str(WARM_UP))
        works[f"plan {dtype}"] = lambda dtype=dtype: plans[dtype].append(predicted(where, dtype))
        works[f"embed {dtype}"] = lambda dtype=dtype: stores.update(
            {dtype: embed_once(where, dtype)}
        )
        works[f"loop {dtype}"] = partial(plain_loop, encoder, where)
    took = interleaved(works, runs)
    tokens = {dtype: open_store(stores[dtype]).manifest.data["tokens"] for dtype in dtypes}
    rows = [row for dtype in dtypes for row in table(dtype, took, tokens[dtype])]
    alike = f"embed {dtypes[-1]} against sentence-transformers in it, batches of {batch}"
    ratio = median_ratio(took["alike"], took[f"embed {dtypes[-1]}"])
    rows.append((alike, f"{ratio:.2f}x", "like for like"))
    for dtype in dtypes:
        right = median_ratio(took[f"embed {dtype}"], plans[dtype])
        rows.append((f"embed {dtype} over what `plan` said", f"{right:.2f}x", "bar 0.8 to 1.2x"))
    return rows, {"seconds": took, "tokens": tokens, "planned": plans}


def table(
    dtype: str, took: dict[str, list[float]], tokens: dict[str, int]
) -> list[tuple[str, str, str]]:
    """The rows of one dtype."""
    ours = took[f"embed {dtype}"]
    speed, (bare, shape) = tokens["real"] / statistics.median(ours), best_forward(dtype)
    faster, share = (
        median_ratio(took["sentence-transformers"], ours),
        median_ratio(ours, took[f"loop {dtype}"]),
    )
    padding = 100 * (tokens["padded"] / tokens["real"] - 1)
    return [
        (
            f"embed {dtype} against SentenceTransformer.encode",
            f"{faster:.2f}x",
            f"bar {BARS[dtype]}",
        ),
        (f"embed {dtype} against the bare forward", f"{speed / bare:.2f}", "bar 0.9"),
        (
            f"embed {dtype}",
            f"{speed:,.0f} tokens/s",
            f"bare forward {bare:,.0f} at {shape[0]} x {shape[1]}",
        ),
        (f"embed {dtype} over a plain loop", f"{share:.3f}x", "bar 1.05x"),
        (f"padding {dtype}", f"{padding:.2f} %", "bar 4 %"),
    ]


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=30_000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        rows, data = measure(where, corpus(args.sentences, args.rows, where), args.runs)
    report(f"embed, {args.rows:,} sentences, MiniLM-L6", rows, args.output, data)


if __name__ == "__main__":
    main()
