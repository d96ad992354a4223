"""`sentence-beam pairs` against sentence-transformers' `paraphrase_mining`, from text to answer, a
process each.

    python -m benchmarks.pairs [--sentences FOLDER] [--rows 10000] [--runs 3] [--output FILE.json]

Both read a file of lines and load the model first; the peer encodes as it does by default, in
float32.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.common import SENTENCES, interleaved, median_ratio, real_texts, report
from sentence_beam.transforms.space import resolve_model

PEER = """
import sys
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import paraphrase_mining
texts = open(sys.argv[2], encoding="utf8").read().splitlines()
for score, a, b in paraphrase_mining(SentenceTransformer(sys.argv[1], device="cpu"), texts)[:10]:
    print(score, texts[a], texts[b], sep="\\t")
"""
OFFLINE = {"HF_HUB_OFFLINE": "1"}


def alone(*arguments: str) -> None:
    """Run Python in a process of its own."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **OFFLINE}
    )
    assert done.returncode == 0, done.stderr


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=10_000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "texts.txt")
        texts = (" ".join(text.split()) for text in real_texts(args.sentences, args.rows))
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf8")
        works = {
            "pairs": partial(alone, "-m", "sentence_beam", "pairs", "--input", str(file)),
            "peer": partial(alone, "-c", PEER, str(resolve_model("minilm").root), str(file)),
            "start": partial(alone, "-m", "sentence_beam", "history", "--help"),
        }
        works["start"]()  # compiles what was never imported
        took = interleaved(works, args.runs)
    rows = [
        (
            "pairs, from text to answer",
            f"{statistics.median(took['pairs']):.1f} s",
            "bar 12 s for 10,000",
        ),
        ("paraphrase_mining over it", f"{median_ratio(took['peer'], took['pairs']):.2f}x", ""),
        ("a command without a model, to start", f"{statistics.median(took['start']):.2f} s", ""),
    ]
    report(
        f"the most similar pairs of {args.rows:,} texts, MiniLM-L6",
        rows,
        args.output,
        {"seconds": took},
    )


if __name__ == "__main__":
    main()
