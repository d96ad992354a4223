"""Stores with watched queries that are brought through ordinary nights by the commands."""

import contextlib
import functools
import io
import itertools
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.watch_corpora import CORPORA
from sentence_beam.pipelines.cli import main as command
from sentence_beam.transforms.report.run_history import recommended_answer_change, run_summaries
from sentence_beam.transforms.steps.embed import load_encoder as loading
from sentence_beam.transforms.store.runs.result import read_result

FILES = 10
QUERIES = 100
PROMPT = "a passage of a manual for programmers: "
SPARE = 4  # texts that are kept for later nights, in parts of the rows
WORDS = ("since 3.4", "deprecated", "see also the manual", "new", "updated", "draft", "reviewed")


@dataclass(frozen=True)
class Row:
    """A row of a corpus; `title` is another column."""

    id: str
    text: str
    title: str


Rows = list[Row]


class Night:
    """A store, its input folder, and the rows in it."""

    def __init__(self, folder: Path, rows: Rows):
        self.folder = folder
        self.rows = rows

    @property
    def store(self) -> str:
        """The store's folder."""
        return str(self.folder / "store")

    def copy(self, folder: Path) -> "Night":
        """Return the same store and rows in another folder."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return Night(folder, list(self.rows))

    def write(self, rows: Rows, files: int = FILES) -> None:
        """Write rows as the input; a row stays in its file. Only `files` of the files stay."""
        parts: dict[int, Rows] = {number: [] for number in range(FILES)}
        for row in rows:
            parts[int(re.findall(r"\d+", row.id)[0]) * FILES // 10**6 % FILES].append(row)
        folder = self.folder / "in"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, part in parts.items():
            if number < files:
                columns = {name: [getattr(row, name) for row in part] for name in vars(part[0])}
                pq.write_table(pa.table(columns), folder / f"{number:02d}.parquet")

    def embed(self, *flags: str) -> "Outcome":
        """Run `embed`."""
        glob = str(self.folder / "in" / "*.parquet")
        return self.run("embed", "--input", glob, "--id-column", "id", *flags)

    def run(self, name: str, *flags: str) -> "Outcome":
        """Run a command on the store."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command([name, *flags, "--store", self.store])
        summaries = run_summaries(self.store)
        result = read_result(self.store, summaries[-1].run)
        watch = result.watch if result is not None else None
        return Outcome(status, err.getvalue().strip(), watch)


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its status, its line on stderr, and the figures of the answers."""

    status: int
    line: str
    watch: dict[str, Any] | None

    def ok(self) -> "Outcome":
        """Check that the command succeeded."""
        assert self.status == 0, self.line
        return self


def begin(folder: Path, name: str, rows: int) -> tuple[Night, list[str]]:
    """Return a store of a corpus that watches drawn queries, and texts for later nights."""
    found = list(itertools.islice(CORPORA[name](), SPARE * rows))
    assert len(found) > rows, f"{name} has {len(found)} texts"
    chance = random.Random(name)
    start = [
        Row(f"r{number * 10**6 // rows:06d}", text, " ".join(text.split()[:2]))
        for number, text in enumerate(found[:rows])
    ]
    night = Night(folder, start)
    night.write(start)
    night.embed("--prompt", PROMPT).ok()
    night.run("watch", "--draw", str(QUERIES)).ok()
    spare = found[rows:]
    chance.shuffle(spare)
    return night, spare


def ordinary(rows: Rows, spare: list[str], chance: random.Random, number: int) -> Rows:
    """Return the rows of the next night: some deleted, edited, replaced, and added ones."""
    churn = chance.uniform(0, 0.05)
    few = int(churn * len(rows))
    places = list(range(len(rows)))
    if number % 2:
        first = chance.randrange(len(rows))
        places = places[first:] + places[:first]  # in clusters: neighbours of a file
    else:
        chance.shuffle(places)
    touched = places[:few]
    found: dict[int, Row | None] = dict(enumerate(rows))
    for place in touched:
        row = rows[place]
        what = chance.choice(("deleted", "edited", "replaced"))
        if what == "deleted":
            found[place] = None
        elif what == "edited":
            found[place] = Row(row.id, f"{row.text} ({chance.choice(WORDS)})", row.title)
        else:
            found[place] = Row(row.id, spare.pop(), row.title)
    grown = [row for row in found.values() if row is not None]
    for _ in range(int(chance.uniform(0, 0.03) * len(rows))):
        text = spare.pop()
        grown.append(Row(f"r{chance.randrange(10**6):06d}n{number}-{len(grown)}", text, text[:20]))
    return grown


def nights_of(
    night: Night, spare: list[str], number: int, seed: int
) -> Iterator[tuple[int, float, bool]]:
    """Run ordinary nights; yield each one's number, change beyond growth, and whether it alarms.

    The store takes the recommended gate when there is one: after seven nights that changed rows.
    Nights before do not count.
    """
    chance = random.Random(seed)
    texts_left = itertools.cycle(spare)
    gate: list[str] = []
    counted = 0
    for turn in itertools.count():
        if counted == number:
            return
        value = recommended_answer_change(run_summaries(night.store))
        if value is not None and not gate:
            gate = ["--max-answer-change", f"{value:g}"]
        more = [f"{next(texts_left)}" for _ in range(len(night.rows))]
        rows = ordinary(night.rows, more, chance, turn)
        night.write(rows)
        outcome = night.embed(*gate)
        alarms = outcome.status == 3
        if alarms:
            night.embed("--max-answer-change", "1").ok()
        else:
            outcome.ok()
        night.rows = rows
        beyond = outcome.watch["beyond"] if outcome.watch is not None else 0.0
        if gate:
            counted += 1
            yield turn, beyond, alarms


@contextlib.contextmanager
def one_model() -> Iterator[None]:
    """Load the model of each space once for all runs inside."""
    load = loading.load_encoder
    kept: dict[str, Any] = {}

    @functools.wraps(load)
    def loaded(job: Any) -> Any:
        key = repr((job.run.space, job.recipe, job.machine, job.chunks))
        if key not in kept:
            kept[key] = load(job)
        return kept[key]

    loading.load_encoder = loaded
    try:
        yield
    finally:
        loading.load_encoder = load
