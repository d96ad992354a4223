"""Faults that make a night answer worse, each with the cause that its line has to name."""

import contextlib
import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.watch_nights import FILES, Night, Outcome, Row
from sentence_beam.pipelines.cli import main as command
from sentence_beam.transforms.store.runs.answer_figures import (
    CAUSES,
    FILE_GONE,
    INDEX_LOST,
    NEW_ROW,
    ROW_CHANGED,
    ROW_DELETED,
    VECTOR_MOVED,
)

COUNTS = 0.15  # share of changed answers from which a fault counts

Fault = Callable[[Night, Path], Outcome]


def texts(change: Callable[[str], str]) -> Fault:
    """Return the fault that changes each text."""

    def run(night: Night, other: Path) -> Outcome:
        night.write([Row(row.id, change(row.text), row.title) for row in night.rows])
        return night.embed()

    return run


def again(*flags: str) -> Fault:
    """Return the fault that embeds everything again with these flags."""
    return lambda night, other: night.embed("--reembed", *flags)


def swapped_ids(night: Night, other: Path) -> Outcome:
    """Give each text the id of the next row."""
    ids = [row.id for row in night.rows]
    shifted = [*ids[1:], ids[0]]
    night.write(
        [Row(name, row.text, row.title) for name, row in zip(shifted, night.rows, strict=True)]
    )
    return night.embed()


def missing_files(night: Night, other: Path) -> Outcome:
    """Lose half of the files."""
    night.write(night.rows, FILES // 2)
    return night.embed("--max-deletes", "0.6")


def last_year(night: Night, other: Path) -> Outcome:
    """Read files that lack two rows in five, and have earlier texts of some others."""
    chance = random.Random(0)
    kept = [row for row in night.rows if chance.random() > 0.4]
    night.write(
        [Row(row.id, row.title if chance.random() < 0.2 else row.text, row.title) for row in kept]
    )
    return night.embed("--max-deletes", "0.6")


def ten_copies(night: Night, other: Path) -> Outcome:
    """Add nine copies of each row."""
    copies = [
        Row(f"{row.id}-{copy}", row.text, row.title) for row in night.rows for copy in range(9)
    ]
    night.write([*night.rows, *copies])
    return night.embed()


def calibration_of_another_corpus(night: Night, other: Path) -> Outcome:
    """Apply a whitening that was fitted on another store."""
    fitted = night.folder / "calibration"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        arguments = ["--method", "whitening:16", "--output", str(fitted)]
        assert command(["fit", "--store", str(other / "store"), *arguments]) == 0
    return night.run("recalibrate", "--calibration", str(fitted))


def too_few_lists(night: Night, other: Path) -> Outcome:
    """Tune the index for a low recall."""
    night.run(
        "index", "--index", "IVF32,Flat", "--target-recall", "1", "--max-answer-change", "1"
    ).ok()
    return night.run("index", "--index", "IVF32,Flat", "--target-recall", "0.3")


FAULTS: dict[str, tuple[Fault, str]] = {
    "wrong text column": (lambda night, other: night.embed("--text-column", "title"), ROW_CHANGED),
    "texts cut at half": (texts(lambda text: text[: len(text) // 2]), ROW_CHANGED),
    "lost prompt": (again("--prompt", ""), VECTOR_MOVED),
    "wrong pooler": (again("--pooler", "cls"), VECTOR_MOVED),
    "calibration of another corpus": (calibration_of_another_corpus, VECTOR_MOVED),
    "half of the files missing": (missing_files, FILE_GONE),
    "last year's files": (last_year, ROW_DELETED),
    "boilerplate added": (
        texts(lambda text: f"All rights reserved. See the licence for details. {text}"),
        ROW_CHANGED,
    ),
    "ten copies of each row": (ten_copies, NEW_ROW),
    "cut to eight tokens": (again("--prompt", "", "--max-tokens", "8"), VECTOR_MOVED),
    "encoding damage": (texts(lambda text: text.encode("utf-16").decode("latin-1")), ROW_CHANGED),
    "swapped ids": (swapped_ids, ROW_CHANGED),
    "too few lists probed": (too_few_lists, INDEX_LOST),
}


@dataclass(frozen=True)
class Told:
    """A fault: the share of changed answers, and whether it was caught and named."""

    corpus: str
    fault: str
    change: float
    caught: bool
    named: bool

    @property
    def counts(self) -> bool:
        """Whether it changes enough answers."""
        return self.change >= COUNTS


def faults_of(
    night: Night, corpus: str, names: list[str], other: Path, where: Path
) -> Iterator[Told]:
    """Run faults, each on a copy of the store."""
    for name in names:
        fault, cause = FAULTS[name]
        outcome = fault(night.copy(where / "fault"), other)
        change = outcome.watch["change"] if outcome.watch is not None else 0.0
        caught = outcome.status == 3
        yield Told(corpus, name, change, caught, f"mostly {CAUSES[cause]} " in outcome.line)
