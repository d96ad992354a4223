"""Scores of calibrations, each fitted on STS-B's training sentences without labels, by pooler.

    python -m benchmarks.sts_calibrations --sts FOLDER [--work FOLDER] [--pooler SPEC ...]
        [--method SPEC ...]

FOLDER holds `stsb-train.tsv`, `stsb-test.tsv` and `sickr-test.tsv` (tab-separated score, sentence1,
sentence2). Embeds, fits and scores MiniLM in float32 with the commands, and prints a Markdown table
of Spearman's correlations, times 100. `--work` keeps the stores, so that a second run embeds
nothing.
"""

import argparse
import contextlib
import csv
import io
import json
import tempfile
from pathlib import Path

from sentence_beam.pipelines.cli import main as command
from sentence_beam.transforms.base.errors import SentenceBeamError

POOLERS = ["mean", "first-last"]
METHODS = ["standardize", "remove-top:1", "remove-top", "remove-top:10", "standardize+remove-top"]
METHODS += ["standardize+remove-top:6", "whitening", "whitening:256", "whitening:128", "flow"]
TASKS = {"STS-B": "stsb-test.tsv", "SICK-R": "sickr-test.tsv"}


def run(*arguments: object) -> None:
    """A command; what it prints is left out."""
    with contextlib.redirect_stdout(io.StringIO()):
        if command([str(argument) for argument in arguments]):
            raise SentenceBeamError(f"sentence-beam {' '.join(map(str, arguments))} failed")


def write_sentences(path: Path, train: Path) -> None:
    """Every first and second sentence, repeats included, a line each."""
    with train.open(encoding="utf8") as f:
        rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    path.write_text(
        "".join(f"{row['sentence1']}\n{row['sentence2']}\n" for row in rows), encoding="utf8"
    )


def fitted(work: Path, pooler: str, methods: list[str]) -> dict[str, str]:
    """Folders of the pooler's calibrations, by method."""
    store = work / f"store-{pooler}"
    run(
        "embed",
        "--input",
        work / "train.txt",
        "--store",
        store,
        "--pooler",
        pooler,
        "--dtype",
        "float32",
    )
    folders = {method: str(work / f"{pooler}-{method}") for method in methods}
    for method, folder in folders.items():
        run("fit", "--store", store, "--method", method, "--output", folder)
    return folders


def scores(
    sts: Path, work: Path, poolers: list[str], folders: list[str]
) -> dict[tuple[str, str | None, str], float]:
    """Spearman by pooler, calibration's folder and task."""
    words = [word for name, file in TASKS.items() for word in ("--task", f"{name}={sts / file}")]
    words += [word for pooler in poolers for word in ("--pooler", pooler)]
    words += [word for folder in folders for word in ("--calibration", folder)]
    run("evaluate", *words, "--output", work / "scores.jsonl")
    rows = map(json.loads, (work / "scores.jsonl").read_text(encoding="utf8").splitlines())
    return {
        (r["pooler"], r["calibration"], r["task"]): r["spearman"]
        for r in rows
        if r["subset"] == "all"
    }


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sts", type=Path, required=True)
    p.add_argument("--work", type=Path)
    p.add_argument("--pooler", action="append")
    p.add_argument("--method", action="append")
    args = p.parse_args()
    poolers, methods = args.pooler or POOLERS, args.method or METHODS
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        write_sentences(work / "train.txt", args.sts / TASKS["STS-B"].replace("test", "train"))
        folders = {pooler: fitted(work, pooler, methods) for pooler in poolers}
        found = scores(
            args.sts, work, poolers, [path for each in folders.values() for path in each.values()]
        )
    heads = [f"`{pooler}` {task}" for pooler in poolers for task in TASKS]
    print(f"| calibration | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for method in [None, *methods]:
        paths = {pooler: folders[pooler][method] if method else None for pooler in poolers}
        cells = [
            f"{found[pooler, paths[pooler], task]:.2f}" for pooler in poolers for task in TASKS
        ]
        print(f"| {f'`{method}`' if method else 'none'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
