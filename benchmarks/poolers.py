"""The cost of each pooler: seconds of a whole encode over those of `mean`, in pairs; peak memory.

    python -m benchmarks.poolers [--sentences FOLDER] [--rows 2000] [--base-rows 300] [--runs 5]
        [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). MiniLM-L6 as it is, and BERT-base with
random weights and MiniLM's vocabulary. Peak memory is that of a process of its own for every
pooler.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.common import SENTENCES, interleaved, median_ratio, real_texts, report
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.pooling import TokenStatistics
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer

BARS = {"ditto": "1.03x", "sbert-wk": "1.10x", "prompt": "none: its template is encoded too"}
POOLERS = (
    [
        "first-last",
        "max",
        "ditto:1-10",
        "ditto:1-10,states=last",
        "ditto:1-10,states=static",
        "sbert-wk",
    ]
    + ["sbert-wk:importance=all", "tfidf:{tfidf}", "remove-biases", "remove-biases:{counts}"]
    + ['prompt:template=This sentence : "{text}" means [MASK].']
)
ALONE = (
    "import json, resource, sys; from sentence_beam.transforms.encoder import Encoder;"
    "model, spec, dtype, texts = sys.argv[1:]; encoder = Encoder.load(model, pooler=spec,"
    " dtype=dtype);encoder.encode(json.load(open(texts)));"
    " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def bert_base(folder: Path) -> Path:
    """BERT-base with random weights and MiniLM's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("minilm").folder)
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tables(model: str, texts: list[str], where: Path) -> dict[str, Path]:
    """Folders of token statistics of these texts."""
    files = resolve_model(model)
    tokenizer, folders = TextTokenizer(files), {}
    tokenized = tokenizer(texts)
    for name, method in (("tfidf", "tfidf"), ("counts", "token-counts")):
        plain = ~np.isin(tokenized.ids, tokenizer.special_ids)
        offsets = np.concatenate([[0], np.cumsum(plain)])[tokenized.offsets]
        arguments = (hash_tokenizer(files), tokenized.ids[plain], offsets, tokenizer.vocabulary)
        folders[name] = where / f"{Path(model).name}-{name}"
        folders[name].mkdir()
        for file, data in TokenStatistics.count(method, *arguments).to_files().items():
            (folders[name] / file).write_bytes(data)
    return folders


def named_specs(model: str, texts: list[str], where: Path) -> dict[str, str]:
    """Every pooler's SPEC as the table names it, and with the paths of its tables filled in."""
    folders = tables(model, texts, where)
    return {
        spec: (
            spec.replace("{tfidf}", str(folders["tfidf"])).replace(
                "{counts}", str(folders["counts"])
            )
        )
        for spec in ["mean", *POOLERS]
    }


def measure(
    model: str, specs: dict[str, str], texts: list[str], runs: int, dtype: str
) -> dict[str, dict[str, list]]:
    """Seconds of every pooler on one model, and of `mean` just before each: a noisy machine's
    minutes differ.
    """
    works = {
        name: partial(Encoder.load(model, pooler=spec, dtype=dtype, device="auto").encode, texts)
        for name, spec in specs.items()
    }
    for work in works.values():  # warm up
        work()
    return {
        name: interleaved({"mean": works["mean"], name: works[name]}, runs)
        for name in works
        if name != "mean"
    }


def bar(spec: str) -> str:
    """Return the most time that a pooler's whole encode may take, as a ratio to that of `mean`."""
    return BARS.get(spec.partition(":")[0], "1.02x")


def peak_memory(model: str, spec: str, texts: Path, dtype: str) -> float:
    """Peak resident MB of a process that encodes the texts with one pooler."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, model, spec, dtype, texts],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.splitlines()[-1]) / 1024


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=2000)
    p.add_argument("--base-rows", type=int, default=300)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--dtype", default="auto")
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    texts, rows, data = real_texts(args.sentences, max(args.rows, args.base_rows)), [], {}
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        models = {
            "MiniLM-L6": ("minilm", args.rows),
            "BERT-base": (str(bert_base(where / "base")), args.base_rows),
        }
        for name, (model, count) in models.items():
            file = where / f"{name}.json"
            file.write_text(json.dumps(texts[:count]))
            specs = named_specs(model, texts[:count], where)
            took = measure(model, specs, texts[:count], args.runs, args.dtype)
            peaks = {
                spec: peak_memory(model, full, file, args.dtype) for spec, full in specs.items()
            }
            data[name] = {"seconds": took, "peak_mb": peaks}
            for spec in POOLERS:
                time, memory = (
                    median_ratio(took[spec][spec], took[spec]["mean"]),
                    peaks[spec] / peaks["mean"],
                )
                rows.append(
                    (
                        f"{name} {spec} over mean",
                        f"{time:.3f}x",
                        f"memory {memory:.3f}x, time bar {bar(spec)}",
                    )
                )
    report(f"poolers, {args.rows:,} and {args.base_rows:,} sentences", rows, args.output, data)


if __name__ == "__main__":
    main()
