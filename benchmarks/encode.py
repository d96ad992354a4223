"""The encoder alone: against sentence-transformers as it comes and at its best setting, and against
the bare forward.

    python -m benchmarks.encode [--sentences FOLDER] [--rows 2000] [--runs 5] [--base-texts 64]
        [--infinity PYTHON] [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). Texts in memory, vectors in memory,
tokenising included. Every program is at its best batch size: sentence-transformers in every type,
ONNX Runtime and OpenVINO if these are installed (`pip install onnx onnxruntime openvino nncf`), and
Infinity if PYTHON is an interpreter that has it; beside each the cosine of its vectors with those
of float32. `taskset -c 0` before the command measures one core.

By length: texts of 16 to 512 tokens through MiniLM-L6 and a BERT-base with random weights, as a
share of the bare forward's best rate (CPU) or of --peak-tflops (GPU).

--tokenizer measures tokenizers alone: processor time of the token ids, with new words and with
known ones, against `encode_batch_fast` with its ids as an array. They are MiniLM's (WordPiece), and
a byte-level BPE and a Unigram tokenizer made from the texts.
"""

import argparse
import json
import logging
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from benchmarks.common import SENTENCES, Row, median_ratio, real_texts, report, seconds, timed
from benchmarks.exported import exported
from benchmarks.poolers import bert_base
from benchmarks.random_models import alike, small, trained_bytes, trained_unigram
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.dtypes import native_dtype
from sentence_beam.transforms.space.model_files import ModelFiles

LENGTHS = (16, 32, 128, 512)
BATCHES = (16, 32, 64, 128, 256)
BARE_TOKENS = {"cpu": (1024, 4096), "cuda": (16384, 65536)}
BARS = {"float32": "1.6x", "bfloat16": "3x"}
TOKENIZER_BARS = {"WordPiece": {"new words": "bar 2.5x", "known words": "bar 4x"}}
OTHER_TOKENIZERS_BARS = {"known words": "bar 2x"}
CALIBRATION_TEXTS = 512
TEXTS_AT_ONCE = 4096  # that the library tokenizes

OURS = "sentence-beam"
PEER = "sentence-transformers"

Work = Callable[[], Any]
Cost = tuple[float, float]  # wall and processor seconds


def dtypes(device: str) -> list[str]:
    """Return the types to measure: float32, and those that the device computes natively."""
    return list(dict.fromkeys(["float32", native_dtype(device)]))


def peers(texts: list[str], device: str) -> dict[str, Work]:
    """Every setting of sentence-transformers that runs here."""
    folder, works = str(resolve_model("minilm").root), {}
    for dtype in dtypes(device):
        model = SentenceTransformer(
            folder, device=device, model_kwargs={"dtype": getattr(torch, dtype)}
        )
        for batch in BATCHES:
            works[f"{PEER} {dtype}, batches of {batch}"] = partial(
                model.encode, texts, batch_size=batch
            )
    if device == "cpu":
        for name, exported_model in exported(folder, texts[:CALIBRATION_TEXTS]).items():
            for batch in BATCHES:
                works[f"{name}, batches of {batch}"] = partial(exported_model.encode, texts, batch)
    return works


def best_of_kinds(took: dict[str, Cost]) -> dict[str, Cost]:
    """Return the quickest of those of a kind (a name up to its comma), the quickest kind first."""
    kinds = {name.split(",")[0] for name in took}
    best = [
        min((name for name in took if name.split(",")[0] == kind), key=took.__getitem__)
        for kind in kinds
    ]
    return {name: took[name] for name in sorted(best, key=took.__getitem__)}


def closeness(one: np.ndarray, other: np.ndarray) -> str:
    """Cosine of vectors of length 1, row by row."""
    cosine = np.einsum("nd,nd->n", one, other, dtype=np.float64)
    return f"cosine with float32 {cosine.mean():.4f}, at worst {cosine.min():.4f}"


def infinity(python: str, texts: list[str]) -> tuple[dict[str, Cost], np.ndarray]:
    """Return the seconds of Infinity's settings, in an interpreter that has it, and its vectors."""
    script = Path(__file__).with_name("infinity_alone.py")
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "texts.json", Path(folder) / "vectors.npy"
        file.write_text(json.dumps(texts))
        arguments = [str(resolve_model("minilm").root), str(file), str(output)]
        done = subprocess.run(
            [python, str(script), *arguments, *map(str, BATCHES)],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        took = json.loads(done.stdout.splitlines()[-1])["took"]
        return {name: (wall, cpu) for name, (wall, cpu) in took.items()}, np.load(output)


def against_peers(
    texts: list[str], runs: int, device: str, python: str | None
) -> tuple[list[Row], dict[str, Any]]:
    """The rates of all programs at their best, sorted; then ours over peers, pair by pair."""
    plain = SentenceTransformer(str(resolve_model("minilm").root), device=device)
    exact = plain.encode(texts)
    works = peers(texts, device)
    for dtype in dtypes(device):
        ours = Encoder.load("minilm", dtype=dtype, device=device)
        works[f"{OURS} {dtype}"] = partial(ours.encode, texts)
    for work in works.values():
        work()
    took = {name: min(timed(work)[1] for _ in range(2)) for name, work in works.items()}
    others: dict[str, np.ndarray] = {}
    if python is not None:
        costs, vectors = infinity(python, texts)
        took |= costs
        others = dict.fromkeys(costs, vectors)
    best = best_of_kinds(took)
    tokens = len(Encoder.load("minilm").tokenize(texts).ids)
    rows = []
    for name, (wall, cpu) in best.items():
        vectors = others[name] if name in others else works[name]()
        rate = f"{tokens / cpu:,.0f} a processor second; {closeness(exact, vectors)}"
        rows.append((name, f"{tokens / wall:,.0f} tokens/s", rate))
    works["its defaults"] = partial(plain.encode, texts)
    more, data = in_pairs(works, best, runs, device)
    return rows + more, data


def in_pairs(
    works: dict[str, Work], best: dict[str, Cost], runs: int, device: str
) -> tuple[list[Row], dict[str, Any]]:
    """Ours over the peer's defaults, the peer in the same dtype, and the quickest other program."""
    rows: list[Row] = []
    data = {}
    quickest = next(name for name in best if name in works and not name.startswith(OURS))
    for dtype in dtypes(device):
        alike = next(name for name in best if name.startswith(f"{PEER} {dtype}"))
        others = {
            "its defaults": f"bar {BARS[dtype]}",
            alike: "like for like",
            quickest: "bar 1.3x for the faster dtype",
        }
        ours = f"{OURS} {dtype}"
        took: dict[str, list[Cost]] = {name: [] for name in (ours, *others)}
        for _ in range(runs):
            for name in took:
                took[name].append(timed(works[name])[1])
        for name, bar in others.items():
            wall, cpu = (
                median_ratio([cost[n] for cost in took[name]], [cost[n] for cost in took[ours]])
                for n in range(2)
            )
            rows.append((f"{dtype} against {name}", f"{wall:.2f}x", f"{bar}; processor {cpu:.2f}x"))
        data[dtype] = took
    return rows, data


def flops_per_token(config: Any, length: int) -> float:
    """Count operations of the blocks: products with weights, attention over the text's length."""
    width, inner = config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * (8 * width**2 + 4 * width * inner + 4 * length * width)


def bare_rate(model: Any, length: int, runs: int) -> float:
    """Tokens a second of the bare model at its best batch size."""
    best = 0.0
    for tokens in BARE_TOKENS[model.device.type]:
        ids = torch.randint(
            0, model.config.vocab_size, (max(1, tokens // length), length), device=model.device
        )
        with torch.inference_mode():
            model(ids)
            best = max(best, ids.numel() / min(seconds(partial(model, ids)) for _ in range(runs)))
    return best


def by_length(name: str, model: str, texts: int, runs: int, args: argparse.Namespace) -> list[Row]:
    """Tokens a second at each length, over the bare forward (CPU) or the device's peak (GPU)."""
    dtype, rows = dtypes(args.device)[-1], []
    encoder = Encoder.load(model, dtype=dtype, device=args.device, pooler="mean")
    bare = (
        AutoModel.from_pretrained(resolve_model(model).folder, dtype=getattr(torch, dtype))
        .eval()
        .to(args.device)
    )
    for length in LENGTHS:
        tokenized = alike(max(1, texts * LENGTHS[0] // length), length, bare.config.vocab_size)
        encoder.embed(tokenized)
        rate = len(tokenized.ids) / statistics.median(
            seconds(partial(encoder.embed, tokenized)) for _ in range(runs)
        )
        tflops = rate * flops_per_token(bare.config, length) / 1e12
        if args.device == "cpu":
            share = f"{rate / bare_rate(bare, length, runs):.2f} of the bare forward"
        else:
            share = f"{100 * tflops / args.peak_tflops:.0f} % of {args.peak_tflops:g} TFLOP/s"
        rows.append(
            (
                f"{name} {dtype}, texts of {length} tokens",
                f"{rate:,.0f} tokens/s",
                f"{share}; {tflops:.2f} TFLOP/s",
            )
        )
    return rows


def processor_seconds(work: Work) -> float:
    """The seconds of processor time that a call takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def tokenizing(texts: list[str], runs: int, where: Path) -> tuple[list[Row], dict[str, Any]]:
    """Every tokenizer's ids by words over those of its library, and whether they are equal."""
    models = {"WordPiece": resolve_model("minilm")}
    for name, train in (("byte-level BPE", trained_bytes), ("Unigram", trained_unigram)):
        folder = small("bert", where / name)
        train(texts).save_pretrained(folder)
        models[name] = resolve_model(str(folder))
    rows: list[Row] = []
    data = {}
    for name, files in models.items():
        more, data[name] = tokenizing_by(name, files, texts, runs)
        rows += more
    return rows, data


def tokenizing_by(
    kind: str, files: ModelFiles, texts: list[str], runs: int
) -> tuple[list[Row], dict[str, list[float]]]:
    """The ids of a model's tokenizer by words over those of its library."""
    library = TextTokenizer(files).whole

    def by_library() -> np.ndarray:
        parts = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            encodings = library.encode_batch_fast(texts[start : start + TEXTS_AT_ONCE])
            parts += [np.array(encoding.ids, np.int32) for encoding in encodings]
        return np.concatenate(parts)

    took: dict[str, list[float]] = {"library": [], "new words": [], "known words": []}
    for _ in range(runs):
        ours = TextTokenizer(files)
        took["new words"].append(processor_seconds(lambda ours=ours: ours(texts)))
        took["known words"].append(processor_seconds(lambda ours=ours: ours(texts)))
        took["library"].append(processor_seconds(by_library))
    ids = by_library()
    same = np.array_equal(ids, TextTokenizer(files)(texts).ids)
    rows = []
    bars = TOKENIZER_BARS.get(kind, OTHER_TOKENIZERS_BARS)
    for name in took:
        ratio = f"{median_ratio(took['library'], took[name]):.2f}x"
        each = statistics.median(took[name]) / len(ids) * 1e9
        rows.append((f"{kind}, {name}: {each:,.0f} ns a token", ratio, bars.get(name, "")))
    rows.append((f"{kind}: {len(ids):,} ids", "identical" if same else "DIFFERENT", ""))
    return rows, took


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=2000)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument(
        "--base-texts",
        type=int,
        default=64,
        help="texts of 16 tokens through BERT-base; fewer longer ones",
    )
    p.add_argument(
        "--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    p.add_argument(
        "--peak-tflops", type=float, default=790.0, help="what the GPU's matrix products reach"
    )
    p.add_argument("--tokenizer", action="store_true", help="measure tokenizers alone")
    p.add_argument("--infinity", metavar="PYTHON", help="an interpreter that has infinity_emb")
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    if args.tokenizer:
        with tempfile.TemporaryDirectory() as folder:
            texts = real_texts(args.sentences, args.rows)
            rows, data = tokenizing(texts, args.runs, Path(folder))
        report(f"tokenizing {args.rows:,} texts", rows, args.output, data)
        return
    texts = real_texts(args.sentences, args.rows)
    rows, data = against_peers(texts, args.runs, args.device, args.infinity)
    with tempfile.TemporaryDirectory() as folder:
        rows += by_length("MiniLM-L6", "minilm", args.rows, args.runs, args)
        rows += by_length(
            "BERT-base", str(bert_base(Path(folder))), args.base_texts, args.runs, args
        )
    report(f"encoding {args.rows:,} sentences on {args.device}", rows, args.output, data)


if __name__ == "__main__":
    main()
