"""What each pooler adds to the time of a whole encode: seconds over those of `mean`, in one process, in turn.

    python -m benchmarks.poolers --sentences FOLDER [--rows 2000] [--base-rows 300] [--runs 5] [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). MiniLM-L6 as it is, and BERT-base with random weights and
MiniLM's vocabulary: only time is measured there.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.common import interleaved, median_ratio, report, sentences
from pipelines import options
from transforms.encoder import Encoder
from transforms.encoder.tokenize import TextTokenizer
from transforms.pooling import TokenStatistics
from transforms.space import resolve_model
from transforms.space.identity import tokenizer_digest

BARS = {"ditto:1-10": "bar 1.03x", "sbert-wk": "bar 1.10x"}
POOLERS = (
    ["first-last", "max", "ditto:1-10", "ditto:1-10,states=last", "ditto:1-10,states=static", "sbert-wk"]
    + ["sbert-wk:importance=all", "tfidf:{tfidf}", "remove-biases", "remove-biases:{counts}"]
    + ['prompt:template=This sentence : "{text}" means [MASK].']
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
        arguments = (tokenizer_digest(files), tokenized.ids[plain], offsets, tokenizer.vocabulary)
        folders[name] = where / f"{Path(model).name}-{name}"
        folders[name].mkdir()
        for file, data in TokenStatistics.count(method, *arguments).to_files().items():
            (folders[name] / file).write_bytes(data)
    return folders


def measure(model: str, texts: list[str], runs: int, dtype: str, where: Path) -> dict[str, list[float]]:
    """Seconds of every pooler on one model."""
    folders, works = tables(model, texts, where), {}
    for spec in ["mean", *POOLERS]:
        named = spec.replace("{tfidf}", str(folders["tfidf"])).replace("{counts}", str(folders["counts"]))
        works[spec] = partial(Encoder.load(model, pooler=named, dtype=dtype, device="auto").encode, texts)
    for work in works.values():  # warm up
        work()
    return interleaved(works, runs)


def main() -> None:
    """Measure and print."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sentences", type=Path, required=True)
    p.add_argument("--rows", type=int, default=2000)
    p.add_argument("--base-rows", type=int, default=300)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--dtype", default="auto")
    p.add_argument("--output")
    args = p.parse_args()
    options.quiet_logs()
    texts, rows, data = sentences(args.sentences, max(args.rows, args.base_rows)), [], {}
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        models = {"MiniLM-L6": ("minilm", args.rows), "BERT-base": (str(bert_base(where / "base")), args.base_rows)}
        for name, (model, count) in models.items():
            took = data[name] = measure(model, texts[:count], args.runs, args.dtype, where)
            ratios = {spec: median_ratio(took[spec], took["mean"]) for spec in POOLERS}
            rows += [
                (f"{name} {spec} over mean", f"{ratio:.3f}x", BARS.get(spec, "")) for spec, ratio in ratios.items()
            ]
    report(f"poolers, {args.rows:,} and {args.base_rows:,} sentences", rows, args.output, data)


if __name__ == "__main__":
    main()
