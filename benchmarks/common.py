"""Helpers of all measurements: the machine, sentences, medians of interleaved runs, tables."""

import contextlib
import csv
import itertools
import json
import os
import platform
import statistics
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from deploy.demo.docstrings import module_docstrings, source_files

SENTENCES = (
    "folder of STS sets (*.tsv with sentence1 and sentence2); without it, docstrings of installed"
    " packages"
)
PACKAGES = (
    "apache-beam", "torch", "transformers", "sentence-transformers", "faiss-cpu", "pyarrow",
    "numpy", "onnxruntime", "openvino", "nncf",
)  # fmt: skip


Row = tuple[str, str, str]  # of a table: what, measured, bar


def machine() -> dict[str, Any]:
    """Processor, cores, whether it computes bfloat16 natively, versions, date."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(line.split("\t", 1) for line in info.splitlines() if "\t" in line)
    of = {name: value.strip(" \t:") for name, value in fields.items()}
    # A cloud's names leave out the generation, and twice as fast is another one.
    known = (
        f"{of['model name']} family {of['cpu family']} model {of['model']}"
        if "cpu family" in of
        else ""
    )
    native = [flag for flag in ("avx512f", "avx512_bf16", "amx_bf16") if f" {flag} " in info + " "]
    versions = {name: metadata.version(name) for name in PACKAGES if _installed(name)}
    return {
        "cpu": known or platform.machine(),
        "cores": os.cpu_count(),
        "flags": native,
        "versions": versions,
        "date": str(date.today()),
    }


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _sentences(folder: Path, count: int) -> list[str]:
    """The first `count` distinct sentences of a folder of STS files (tab-separated, with a
    header).
    """
    found: dict[str, None] = {}
    for path in sorted(folder.glob("*.tsv")):
        with path.open(encoding="utf8") as f:
            for row in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE):
                found.update({row["sentence1"]: None, row["sentence2"]: None})
    return list(found)[:count]


def real_texts(folder: Path | None, count: int) -> list[str]:
    """Return `count` distinct texts: sentences, then first paragraphs of docstrings, the standard
    library's and packages'.

    If an installation has too few of them, they are repeated with a number before them.
    """
    found = dict.fromkeys(_sentences(folder, count) if folder else [])
    more = paragraphs()
    while len(found) < count and (text := next(more, None)) is not None:
        found[text] = None
    known = list(found)
    again = (f"{turn} {text}" for turn in itertools.count(2) for text in known)
    return [*known, *itertools.islice(again, count - len(known))]


def paragraphs() -> Iterator[str]:
    """Yield the first paragraphs of docstrings of the installed modules."""
    for root in (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")):
        for module, path in sorted(source_files(root)):
            # packages hold templates that are not Python yet
            with contextlib.suppress(SyntaxError, ValueError):
                yield from (
                    text.split("\n\n")[0]
                    for _, text in module_docstrings(module, path.read_bytes())
                )


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """Result of the work, and its (wall, CPU) seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


def fastest(works: Sequence[Callable[[], Any]], rounds: int = 9) -> list[tuple[float, float]]:
    """Least (wall, CPU) seconds of each work over rounds that take turns."""
    costs = np.array([[timed(work)[1] for work in works] for _ in range(rounds)]).min(axis=0)
    return [(float(wall), float(cpu)) for wall, cpu in costs]


def interleaved(works: dict[str, Callable[[], Any]], runs: int) -> dict[str, list[float]]:
    """Seconds of each, measured in turn (A B C, A B C, ...) so that a machine that slows down slows
    all of them.
    """
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            took[name].append(seconds(work))
    return took


def median_ratio(a: list[float], b: list[float]) -> float:
    """Median of a/b, pair by pair."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def report(title: str, rows: list[Row], output: str | None, data: dict[str, Any]) -> None:
    """Print a table of (what, measured, bar) and write everything as JSON."""
    found = machine()
    print(
        f"{title}: {found['date']}, {found['cpu']}, {found['cores']} cores,"
        f" {' '.join(found['flags']) or 'no avx512'}"
    )
    print(", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    width = max(len(row[0]) for row in rows)
    for what, measured, bar in rows:
        print(f"  {what:<{width}}  {measured:>18}  {bar}")
    if output:
        Path(output).write_text(
            json.dumps({"title": title, "machine": found, "rows": rows, **data}, indent=1) + "\n"
        )
