"""The cost of a start on the command line: processor seconds of whole processes, user and system.

    python -m benchmarks.start [--sentences FOLDER] [--rows 5000] [--runs 3] [--output FILE.json]

`sentence-beam search` for one query in a store of so many rows, without an index and with one,
beside importing torch, which it cannot do without. Then `embed` of a store whose input is
unchanged, `import sentence_beam`, and a command that needs no model.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.common import SENTENCES, real_texts, report

IMPORTS = "import torch"
QUERY = "how far apart are two dates"
BAR = 1.5  # times the import of torch
UNCHANGED = 2.5  # seconds


def processor_seconds(*command: str) -> float:
    """Return the processor seconds of a process and of its children."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    p = argparse.ArgumentParser("benchmarks.start", description="The processor seconds of a query.")
    p.add_argument("--sentences", type=Path, metavar="FOLDER", help=SENTENCES)
    p.add_argument("--rows", type=int, default=5000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args(argv)
    command = partial(processor_seconds, sys.executable, "-m", "sentence_beam")
    python = partial(processor_seconds, sys.executable, "-c")
    with tempfile.TemporaryDirectory() as folder:
        plain, indexed = f"{folder}/plain", f"{folder}/indexed"
        (Path(folder) / "texts.txt").write_text(
            "\n".join(" ".join(text.split()) for text in real_texts(args.sentences, args.rows))
        )
        embed = ("embed", "--quiet", "--input", f"{folder}/texts.txt")
        for store, index in ((plain, "none"), (indexed, "auto")):
            command(*embed, "--store", store, "--index", index)
        works = {
            "imports": partial(python, IMPORTS),
            "search": partial(command, "search", "--store", plain, "--query", QUERY),
            "indexed": partial(command, "search", "--store", indexed, "--query", QUERY),
            "unchanged": partial(command, *embed, "--store", plain),
            "package": partial(python, "import sentence_beam"),
            "files": partial(command, "files", "--store", plain),
        }
        took: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(1 + args.runs):
            for name, work in works.items():
                took[name].append(work())
    # the first ones compile
    found = {name: statistics.median(seconds[1:]) for name, seconds in took.items()}

    def times_torch(name: str) -> tuple[str, str, str]:
        ratio = found[name] / found["imports"]
        return ("... times the import of torch", f"{ratio:.2f}", f"<= {BAR}")

    rows = [
        ("importing torch", f"{found['imports']:.2f} s", ""),
        ("search, one query, every row compared", f"{found['search']:.2f} s", ""),
        times_torch("search"),
        ("search, one query, with an index", f"{found['indexed']:.2f} s", ""),
        times_torch("indexed"),
        ("embed, unchanged input", f"{found['unchanged']:.2f} s", f"<= {UNCHANGED} s"),
        ("import sentence_beam", f"{found['package']:.3f} s", ""),
        ("files, which needs no model", f"{found['files']:.2f} s", ""),
    ]
    report(
        f"a query in {args.rows:,} rows, processor seconds", rows, args.output, {"seconds": took}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
