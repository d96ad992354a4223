"""A model in int8: `--dtype int8` against OpenVINO's own loop over its own quantised model.

    python -m benchmarks.int8 [--sentences FOLDER] [--rows 3000] [--runs 3] [--output FILE.json]

Wants the extra `openvino`, and `onnx` for the peer. Texts and vectors are in memory; both quantise
on the same 512 texts. A rate is the slope between N and 2N rows in processor seconds, so that
starting and quantising are left out. FOLDER with `stsb-test.tsv` adds the loss on STS-B. nDCG@10
is of sentences taken out of documents of installed packages, as in `benchmarks.document_stores`;
documents are cut at the model's limit.
"""

import argparse
import csv
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import SENTENCES, Row, real_texts, report
from benchmarks.document_stores import documents, tokenizer
from benchmarks.encode import CALIBRATION_TEXTS, closeness, processor_seconds
from benchmarks.exported import exported
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.calibration.quality import spearman
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.quantise import quantise
from sentence_beam.transforms.space import Machine, Recipe

BATCHES = (16, 32, 64)
DOCUMENTS = 300
DEPTH = 10  # of nDCG
PEER = "OpenVINO int8"
SENTENCE_COLUMNS = ("sentence1", "sentence2")
Encode = Callable[[list[str]], np.ndarray]


def int8_encoder(texts: list[str]) -> Encoder:
    """Return MiniLM in int8, its ranges fitted on texts."""
    recipe = Recipe(dtype="int8")
    exact = Encoder.load("minilm", dtype="float32", device="cpu")
    model = quantise(recipe.files(), exact, exact.space.weights, texts)
    return Encoder.from_recipe(recipe, Machine("cpu"), int8=model)


def slope(encode: Encode, texts: list[str]) -> float:
    """Processor seconds for all texts less those for the first half of them."""
    half = processor_seconds(partial(encode, texts[: len(texts) // 2]))
    return processor_seconds(partial(encode, texts)) - half


def fastest_peer(texts: list[str], sample: list[str]) -> tuple[str, Encode]:
    """Return the peer at its best batch size on a sample, with its name."""
    peer = exported(str(Recipe().files().root), texts[:CALIBRATION_TEXTS])[PEER]

    def at(batch: int) -> Encode:
        return lambda some: peer.encode(some, batch)

    peer.encode(sample, BATCHES[0])
    took = {batch: processor_seconds(partial(at(batch), sample)) for batch in BATCHES}
    best = min(took, key=took.__getitem__)
    return f"{PEER}, batches of {best}", at(best)


def sts_scores(folder: Path, encoders: dict[str, Encoder]) -> list[Row]:
    """Return a row about each encoder's score on STS-B."""
    with (folder / "stsb-test.tsv").open(encoding="utf8") as file:
        found = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    gold = np.array([float(row["score"]) for row in found])
    rows = []
    for name, encoder in encoders.items():
        first, second = (encoder.encode([r[key] for r in found]) for key in SENTENCE_COLUMNS)
        score = 100 * spearman(np.einsum("nd,nd->n", first, second), gold)
        rows.append((f"STS-B, {name}", f"{score:.2f}", "at most 0.3 below float32"))
    return rows


def retrieval_scores(encoders: dict[str, Encoder]) -> list[Row]:
    """Return a row about each encoder's nDCG@10, each query having one relevant document."""
    found = documents(tokenizer(), DOCUMENTS)
    rows = []
    for name, encoder in encoders.items():
        vectors = encoder.encode([document.text for document in found])
        queries = encoder.encode([document.inside for document in found])
        scores = queries @ vectors.T
        ranks = (scores > np.diag(scores)[:, None]).sum(axis=1)
        gains = np.where(ranks < DEPTH, 1 / np.log2(ranks + 2), 0)
        score = f"{100 * gains.mean():.2f} of {len(found)} queries"
        rows.append((f"nDCG@{DEPTH}, {name}", score, "at most 0.5 below float32"))
    return rows


def measure(texts: list[str], runs: int, folder: Path | None) -> tuple[list[Row], dict[str, Any]]:
    """Return the table of rates and scores, and the seconds of every run."""
    ours = int8_encoder(texts[:CALIBRATION_TEXTS])
    exact = Encoder.load("minilm", dtype="float32", device="cpu")
    name, peer = fastest_peer(texts, texts[:1000])
    works: dict[str, Encode] = {"ours": ours.encode, name: peer}
    took: dict[str, list[float]] = {key: [] for key in works}
    for _ in range(runs):
        for key, encode in works.items():
            took[key].append(slope(encode, texts))
    tokens = int(exact.tokenize(texts[len(texts) // 2 :]).lengths.sum())
    reference = exact.encode(texts[:1000])
    rows = [
        (
            key,
            f"{tokens / statistics.median(took[key]):,.0f} tokens/s of one core",
            closeness(reference, encode(texts[:1000])),
        )
        for key, encode in works.items()
    ]
    ratio = statistics.median(a / b for a, b in zip(took[name], took["ours"], strict=True))
    rows.append((f"ours over {name}", f"{ratio:.2f}x", "bar 1.0x"))
    encoders = {"float32": exact, "int8": ours}
    rows += retrieval_scores(encoders)
    if folder is not None:
        rows += sts_scores(folder, encoders)
    return rows, took


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=3000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    texts = real_texts(args.sentences, 2 * args.rows)
    rows, data = measure(texts, args.runs, args.sentences)
    report(f"int8, {args.rows:,} to {2 * args.rows:,} sentences", rows, args.output, data)


if __name__ == "__main__":
    main()
