"""What `benchmarks.gpu_check` times: the encoder by length, sentence-transformers, `embed` end to
end, an index.
"""

import importlib.util
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.common import seconds
from benchmarks.gpu_exact import Finding, tried
from benchmarks.gpu_machine import Place
from benchmarks.random_models import SHAPES, RandomModel, alike, save_model
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.tokenize import Tokenized
from sentence_beam.transforms.index import kmeans
from sentence_beam.transforms.index.faiss_module import load_faiss

# Shares of the peak at 128 tokens and more; how much faster than the peer; `embed` over the slower
# of its two halves.
BARS, FASTER, END_TO_END = {"MiniLM": 0.35, "BERT-base": 0.60, "Qwen3-0.6B": 0.50}, 2.0, 0.8
WHOLE, OVER_PEER = "embed, end to end", "real mix, over sentence-transformers"
PEER_BATCHES = (64, 256, 1024)
UNIT_TOKENS = 500_000  # that are planned, and finished, in one go beside the computation
_FEW = 100  # rows of a first run


@dataclass(frozen=True)
class Load:
    """How much is timed: tokens of each shape by length, texts of the real mix, rows of `embed` and
    of the index.
    """

    tokens: dict[str, int]
    lengths: tuple[int, ...]
    texts: int
    rows: int
    index_rows: int
    dim: int = 384
    shapes: dict[str, tuple[str, dict[str, Any]]] | None = None  # None: the well-known ones


@dataclass(frozen=True)
class Shapes:
    """Models of random weights of the shapes that are timed, each made in `where` when first
    used; `made` are those that are there.
    """

    load: Load
    where: Path
    made: dict[str, RandomModel] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the shapes, the smallest first."""
        return list(self.load.shapes or SHAPES)

    def model(self, name: str) -> RandomModel:
        """Return the model of a shape."""
        if name not in self.made:
            family, settings = (self.load.shapes or SHAPES)[name]
            where = self.where / name
            self.made[name] = save_model(family, where, torch.bfloat16, **settings)
        return self.made[name]

    def encoder(self, name: str, place: Place, **options: Any) -> Encoder:
        """Load the model of a shape with the pooler `mean`, in 16 bits."""
        return Encoder.load(
            str(self.model(name).folder),
            **{"pooler": "mean", "dtype": place.dtype, "device": place.device, **options},
        )


def bars(lengths: tuple[int, ...]) -> dict[str, float]:
    """What is to be reached, by the line that measures it: shares of the peak, and ratios."""
    shares = {
        f"{name}, {length} tokens": bar
        for name, bar in BARS.items()
        for length in lengths
        if length >= 128
    }
    return {**shares, WHOLE: END_TO_END, **{f"{name}, {OVER_PEER}": FASTER for name in BARS}}


def throughput(shapes: Shapes, found: list[str], place: Place) -> Iterator[Finding]:
    """Each shape by length and over the real mix."""
    load = shapes.load
    for name in shapes.names:
        encoder, model = shapes.encoder(name, place), shapes.model(name)
        for length in load.lengths:
            tokenized = alike(max(1, load.tokens[name] // length), length, 30_000)
            what, bar = f"{name}, {length} tokens", BARS.get(name) if length >= 128 else None
            yield tried(
                what,
                partial(rate_of, what, encoder, tokenized, model.flops(length), place, bar),
            )
        tokenized = encoder.tokenize(found[: load.texts])
        mean = float(np.square(tokenized.lengths, dtype=np.float64).sum() / tokenized.lengths.sum())
        what = f"{name}, real mix"
        yield tried(
            what,
            partial(rate_of, what, encoder, tokenized, model.flops(round(mean)), place, None),
        )
        del encoder


def beside_peer(shapes: Shapes, found: list[str], place: Place) -> Iterator[Finding]:
    """Each shape over the real mix beside sentence-transformers."""
    for name in shapes.names:
        what = f"{name}, {OVER_PEER}"
        work = partial(_beside_peer, what, shapes, name, found[: shapes.load.texts], place)
        yield tried(what, work)


def rate_of(
    what: str, encoder: Encoder, tokenized: Any, flops: float, place: Place, bar: float | None
) -> Finding:
    """Tokens a second of unit after unit in memory, the better of two; with a peak, its share and
    the host's.
    """
    work = partial(run_units, encoder, units_of(tokenized))
    work()
    took = min(seconds(work) for _ in range(2))
    rate = len(tokenized.ids) / took
    if place.peak is None:
        return Finding(what, f"{rate:,.0f} tokens/s", "share of a peak, host share: not measured")
    share, busy = rate * flops / place.peak / 1e12, _busy(work)
    host = "not seen" if busy is None else f"{100 * max(0.0, 1 - busy / took):.0f} %"
    measured = f"{rate:,.0f} tokens/s, {100 * share:.0f} %, host {host}"
    if bar is None:
        return Finding(what, measured, f"of {place.peak:g} TFLOP/s")
    return Finding(
        what, measured, f">= {100 * bar:.0f} % of {place.peak:g} TFLOP/s", share >= bar, share
    )


def units_of(tokenized: Tokenized) -> list[Tokenized]:
    """The texts in parts as large as units are."""
    parts = min(len(tokenized.counts), -(-len(tokenized.ids) // UNIT_TOKENS))
    return [
        tokenized.take(rows) for rows in np.array_split(np.arange(len(tokenized.counts)), parts)
    ]


def run_units(encoder: Encoder, units: list[Tokenized]) -> None:
    """Units through an encoder as `embed` takes them: planned and finished while others are
    computed.
    """
    with ThreadPoolExecutor(1) as writer:
        written = [
            writer.submit(encoder.finish, encoder.start(encoder.plan(unit))) for unit in units
        ]
    for each in written:
        each.result()


def _busy(work: Callable[[], Any]) -> float | None:
    """Seconds that kernels run on the GPUs during a call; None where torch's profiler does not see
    them.
    """
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            work()
        # Memcpy, Memset
        kernels = [event for event in seen.key_averages() if not event.key.startswith("Mem")]
    except Exception:  # a machine may not let a process look; the speed is worth having
        return None
    return sum(event.self_device_time_total for event in kernels) / 1e6 or None


def _beside_peer(what: str, shapes: Shapes, name: str, texts: list[str], place: Place) -> Finding:
    """Ours over sentence-transformers in 16 bits with its fastest attention and batch, from text
    to vectors.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return Finding(what, "not measured", "sentence-transformers is not installed")
    kinds = ["sdpa", *(["flash_attention_2"] if importlib.util.find_spec("flash_attn") else [])]
    best = {}
    for kind in kinds:
        kwargs = {"dtype": getattr(torch, place.dtype), "attn_implementation": kind}
        folder = str(shapes.model(name).folder)
        peer = SentenceTransformer(folder, device=place.peer, model_kwargs=kwargs)
        for batch in PEER_BATCHES:
            if batch <= max(PEER_BATCHES[0], len(texts)):
                work = partial(peer.encode, texts, batch_size=batch)
                peer.encode(texts[:batch], batch_size=batch)
                best[seconds(work)] = f"{kind}, batches of {batch}"
    theirs = min(best)
    encoder = shapes.encoder(name, place)
    encoder.encode(texts[:64])
    faster = theirs / min(seconds(partial(encoder.encode, texts)) for _ in range(2))
    holds = faster >= FASTER if place.peak is not None else None
    value = faster if place.peak is not None else None
    return Finding(
        what, f"{faster:.2f}x ({best[theirs]})", f">= {FASTER:g}x on a GPU", holds, value
    )


def end_to_end(load: Load, found: list[str], place: Place, where: Path) -> Finding:
    """`embed` from Parquet to shards over the slower of encoder and tokenizer.

    A run over a third of the rows is subtracted from one over all, and with it the start, the first
    unit, for which nothing is computed yet, and the last one, beside which nothing is read.
    """
    from sentence_beam.transforms.store import open_store

    family, settings = next(iter((load.shapes or SHAPES).values()))
    model = str(save_model(family, where / "end", torch.float32, **settings).folder)
    turns = range(-(-load.rows // len(found)))
    texts = [f"{turn} {text}" for turn in turns for text in found][: load.rows]
    pq.write_table(pa.table({"text": texts}), where / "rows.parquet", row_group_size=5000)
    options = ["--model", model, "--pooler", "mean", "--dtype", place.dtype, "--device"]
    options += [place.device, "--quiet", "--input", str(where / "rows.parquet")]
    third = load.rows // 3
    took = {}
    # the first run imports what the others have
    for name, rows in (("few", _FEW), ("third", third), ("all", load.rows)):
        run = [*options, "--limit", str(rows), "--store", str(where / name)]
        took[name] = seconds(partial(_embed, run))
    # a difference that is hardly more than nothing says nothing
    difference = max(took["all"] - took["third"], took["all"] / 10)
    encoder = Encoder.load(model, pooler="mean", dtype=place.dtype, device=place.device)
    tokenized = encoder.tokenize(texts[third:])
    embedded = partial(run_units, encoder, units_of(tokenized))
    apart = {
        "tokenizer": seconds(partial(encoder.tokenize, texts[third:])),
        "encoder": seconds(embedded),
    }
    stored = open_store(str(where / "all")).dataset().head(64).column("embedding").to_pylist()
    cosine = float((np.array(stored) * encoder.encode(texts[:64])).sum(axis=1).min())
    share = max(apart.values()) / difference
    count = len(tokenized.ids)
    rates = [f"{name} {count / each:,.0f}" for name, each in apart.items()]
    measured = f"{share:.2f}: {count / difference:,.0f} tokens/s, {', '.join(rates)}"
    holds = cosine >= 0.999 and (share >= END_TO_END or place.peak is None)
    value = share if place.peak is not None else None
    return Finding(
        WHOLE,
        f"{measured}, cosine {cosine:.4f}",
        f">= {END_TO_END:g} on a GPU, cosine >= 0.999",
        holds,
        value,
    )


def _embed(arguments: list[str]) -> None:
    from sentence_beam.pipelines import embed

    assert embed.main(arguments) == 0, "embed failed"


def index(load: Load, place: Place, where: Path) -> Finding:
    """An index trained on the GPU beside one trained on the processor: recall, and what its files
    hold.
    """
    from benchmarks.index import synthetic
    from benchmarks.index_nights import Nights
    from sentence_beam.transforms.beam import IndexRequest

    what, bar = "index trained on the GPU", "recall within the processor's interval, files alike"
    on_gpu = kmeans.has_gpu()
    if (
        not load.index_rows
        or importlib.util.find_spec("faiss") is None
        or (place.peak is not None and not on_gpu)
    ):
        return Finding(what, "not measured", bar)
    vectors, _ = synthetic(load.index_rows, load.dim)
    rows = [(f"{n}", f"text {n}", n) for n in range(load.index_rows)]
    found = {}
    for name, there in (("gpu", True), ("cpu", False)):
        (where / name).mkdir()
        with patch.object(kmeans, "has_gpu", lambda there=there: there):
            found[name] = Nights(where / name, vectors).night([rows], IndexRequest("auto"))[1]
    recall, other = found["gpu"]["recall"]["value"], found["cpu"]["recall"]
    alike_files = _contents(where / "gpu") == _contents(where / "cpu")
    means = "by faiss" if load_faiss().get_num_gpus() else "by torch"
    holds = other["low"] <= recall <= other["high"] and alike_files
    measured = f"{means}: {recall:.3f}, processor {other['low']:.3f} to {other['high']:.3f}"
    return Finding(what, f"{measured}, files {'alike' if alike_files else 'not alike'}", bar, holds)


def _contents(root: Path) -> list[tuple[str, int, int]]:
    """The kind of each file of faiss of a store's index, its vectors and their width, as any reader
    finds them.
    """
    from sentence_beam.transforms.store.manifest import read_manifest

    manifest = read_manifest(str(root))
    assert manifest is not None
    assert manifest.index is not None
    faiss = load_faiss()
    paths = [root / path for path, _ in manifest.index.files if path.endswith(".faiss")]
    opened = [faiss.read_index(str(path)) for path in paths]
    return sorted(
        (type(faiss.downcast_index(each)).__name__, each.ntotal, each.d) for each in opened
    )
