"""The short measurements, one after the other, and their ratios in one table.

    python -m benchmarks.short --sentences FOLDER

Each runs as a process of its own and prints its own table first. Nothing else should run meanwhile.
A row of the last table is one that has a bar to meet, or is a ratio. int8 wants OpenVINO.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import SENTENCES, Row, report

# A module of this folder, and its options for two cores.
WITH_TEXTS = {
    "encode": ("--rows", "300", "--runs", "3", "--base-texts", "8"),
    "pipeline": ("--rows", "4000", "--runs", "1"),
    "poolers": ("--rows", "80", "--base-rows", "8", "--runs", "3"),
    "nightly": ("--rows", "5000", "--growth", "5000", "50000"),
    "host": ("--rows", "20000"),
    "memory": (),
}
INT8 = {"int8": ("--rows", "1000")}
OTHERS = {
    "start": ("--rows", "1000", "--runs", "3"),
    "ingest": ("--rows", "300000"),
    "index": ("--rows", "25000", "--segments", "1"),
}


def ratios(module: str, rows: list[Row]) -> list[Row]:
    """Return the rows that have a bar, or are a ratio, with the module's name before them."""
    return [
        (f"{module}: {what}", measured, bar)
        for what, measured, bar in rows
        if bar.startswith(("bar", "<=", ">=")) or measured.endswith("x")
    ]


def measure(module: str, options: tuple[str, ...], output: Path) -> list[Row]:
    """Run a module in a process of its own; return the rows of its table."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *options, "--output", str(output)]
    subprocess.run(command, check=True)
    return [(what, measured, bar) for what, measured, bar in json.loads(output.read_text())["rows"]]


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--output")
    args = p.parse_args()
    texts: tuple[str, ...] = ()
    if args.sentences:
        texts = ("--sentences", str(args.sentences))
    with_texts = WITH_TEXTS
    if importlib.util.find_spec("openvino") is not None:
        with_texts = WITH_TEXTS | INT8
    modules = {name: (*options, *texts) for name, options in with_texts.items()} | OTHERS
    rows: list[Row] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for module, options in modules.items():
            rows += ratios(module, measure(module, options, Path(folder) / f"{module}.json"))
    minutes = (time.monotonic() - started) / 60
    report(f"all short measurements, {minutes:.1f} minutes", rows, args.output, {})


if __name__ == "__main__":
    main()
