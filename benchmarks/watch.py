"""Whether the gate of watched queries catches nights that answer worse, and lets others pass.

    python -m benchmarks.watch [--rows 600] [--faults 40] [--nights 300] [--seed 1] [--cost ROWS]
        [--output FILE.json]

Five corpora are made of what is installed: docstrings of the standard library, docstrings of
packages, paragraphs of package descriptions, long docstrings, and comments of the standard library.
Each is a store of ten files that watches drawn queries. After seven nights it takes the gate that
the summary recommends. Then follow ordinary nights (0 to 5 % of the rows deleted, edited or
replaced, 0 to 3 % added, on every second night in neighbouring rows), and on copies of the store
the faults. A fault counts if it changes 15 % of the answers or more. It is caught if the run ends
with exit status 3, and named if the line names its cause. All runs go through the commands; one
model is loaded for all of them. `--cost` times 300 queries over so many rows with an index, in a
night that edits 1 % of them, against embedding all rows.
"""

import argparse
import contextlib
import functools
import io
import itertools
import random
import re
import shutil
import sysconfig
import tempfile
import time
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import real_texts, report
from deploy.demo.docstrings import module_docstrings, source_files
from pipelines.cli import main as command
from transforms.report.history import RUNS_SEEN, recommended_answer_change, run_summaries
from transforms.steps.embed import load_encoder as loading
from transforms.steps.watch.ask import current_queries
from transforms.steps.watch.watch_run import compare_with_kept
from transforms.store import open_store
from transforms.store.runs.answers import (
    CAUSES,
    FILE_GONE,
    INDEX_LOST,
    NEW_ROW,
    ROW_CHANGED,
    ROW_DELETED,
    VECTOR_MOVED,
)
from transforms.store.runs.result import read_result
from transforms.store.watched import read_queries

FILES = 10
QUERIES = 100
ROWS_PER_FILE = 10_000  # of the cost
COUNTS = 0.15  # share of changed answers from which a fault counts
PROMPT = "a passage of a manual for programmers: "
SPARE = 4  # texts that are kept for later nights, in parts of the rows


@dataclass(frozen=True)
class Row:
    """A row of a corpus; `title` is another column."""

    id: str
    text: str
    title: str


Rows = list[Row]


def paragraphs(texts: Iterator[str], least: int, most: int) -> Iterator[str]:
    """Yield distinct paragraphs of so many characters, in one line each."""
    seen = set()
    for text in texts:
        for part in text.split("\n\n"):
            flat = " ".join(part.split())
            if least <= len(flat) <= most and flat not in seen and flat[0].isalpha():
                seen.add(flat)
                yield flat


def docstrings(root: str) -> Iterator[str]:
    """Yield the docstrings below a folder."""
    for module, path in sorted(source_files(Path(sysconfig.get_path(root)))):
        with contextlib.suppress(SyntaxError, ValueError):
            yield from (text for _, text in module_docstrings(module, path.read_bytes()))


def descriptions() -> Iterator[str]:
    """Yield the descriptions of installed packages."""
    for about in sorted(metadata.distributions(), key=lambda found: found.metadata["Name"] or ""):
        yield str(about.metadata.get_payload())


def comments() -> Iterator[str]:
    """Yield the comments of the standard library, neighbouring lines together."""
    for _, path in sorted(source_files(Path(sysconfig.get_path("stdlib")))):
        block: list[str] = []
        with (
            contextlib.suppress(SyntaxError, ValueError, tokenize.TokenError),
            path.open("rb") as f,
        ):
            for token in tokenize.tokenize(f.readline):
                if token.type == tokenize.COMMENT:
                    block.append(token.string.lstrip("# "))
                elif token.type != tokenize.NL and block:
                    yield " ".join(block)
                    block = []


CORPORA: dict[str, Callable[[], Iterator[str]]] = {
    "standard library": lambda: paragraphs(docstrings("stdlib"), 60, 400),
    "packages": lambda: paragraphs(docstrings("purelib"), 60, 400),
    "descriptions": lambda: paragraphs(descriptions(), 80, 600),
    "long docstrings": lambda: paragraphs(docstrings("purelib"), 400, 1500),
    "comments": lambda: paragraphs(comments(), 60, 500),
}


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
    night.run("index", "--index", "IVF32,Flat", "--target-recall", "1", "--accept-answers").ok()
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


WORDS = ("since 3.4", "deprecated", "see also the manual", "new", "updated", "draft", "reviewed")


def nights_of(
    night: Night, spare: list[str], number: int, seed: int
) -> Iterator[tuple[int, float, bool]]:
    """Run ordinary nights; yield each one's number, change beyond growth, and whether it alarms.

    After seven nights the store takes the recommended gate; these do not count.
    """
    chance = random.Random(seed)
    texts_left = itertools.cycle(spare)
    gate: list[str] = []
    for turn in range(RUNS_SEEN + number):
        if turn == RUNS_SEEN:
            value = recommended_answer_change(run_summaries(night.store))
            gate = ["--max-answer-change", f"{value:g}"]
        more = [f"{next(texts_left)}" for _ in range(len(night.rows))]
        rows = ordinary(night.rows, more, chance, turn)
        night.write(rows)
        outcome = night.embed(*gate)
        alarms = outcome.status == 3
        if alarms:
            night.embed("--accept-answers").ok()
        else:
            outcome.ok()
        night.rows = rows
        beyond = 0.0
        if outcome.watch is not None:
            beyond = outcome.watch["beyond"]
        if turn >= RUNS_SEEN:
            yield turn, beyond, alarms


def faults_of(
    night: Night, corpus: str, names: list[str], other: Path, where: Path
) -> Iterator[Told]:
    """Run faults, each on a copy of the store."""
    for name in names:
        fault, cause = FAULTS[name]
        outcome = fault(night.copy(where / "fault"), other)
        change = 0.0
        if outcome.watch is not None:
            change = outcome.watch["change"]
        caught = outcome.status == 3
        yield Told(corpus, name, change, caught, f"mostly {CAUSES[cause]} " in outcome.line)


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


def cost(rows: int, where: Path) -> tuple[float, float]:
    """Return processor seconds of a night's watched queries, and of embedding all rows once.

    In the night one row in a hundred is edited.
    """
    night = Night(where, [])
    found = real_texts(None, rows)
    ids = [f"r{number}" for number in range(rows)]
    folder = where / "in"
    folder.mkdir(parents=True)

    def write(texts: list[str]) -> None:
        for start in range(0, rows, ROWS_PER_FILE):
            part = slice(start, start + ROWS_PER_FILE)
            columns = {"id": ids[part], "text": texts[part]}
            pq.write_table(pa.table(columns), folder / f"{start:07d}.parquet")

    write(found)
    start = time.process_time()
    night.embed().ok()
    embedding = time.process_time() - start
    night.run("index").ok()
    night.run("watch", "--draw", "300").ok()
    old = open_store(night.store).manifest
    write([f"{text} (edited)" if n % 100 == 0 else text for n, text in enumerate(found)])
    night.embed().ok()
    new = open_store(night.store).manifest
    assert old.watch is not None
    start = time.process_time()
    watched = current_queries(read_queries(night.store, old.watch), new)
    compare_with_kept(old, new, old.watch, watched)
    return time.process_time() - start, embedding


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--nights", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cost", type=int, default=0)
    parser.add_argument("--output")
    asked = parser.parse_args(arguments)
    told: list[Told] = []
    nights: list[tuple[str, int, float, bool]] = []
    gates: dict[str, float | None] = {}
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder, one_model():
        where = Path(folder)
        corpora = list(CORPORA)
        if not asked.faults and not asked.nights:
            corpora = []
        begun = {
            name: begin(where / str(number), name, asked.rows)
            for number, name in enumerate(corpora)
        }
        turns = itertools.cycle(FAULTS)
        for number, (name, (night, spare)) in enumerate(begun.items()):
            some = len(range(number, asked.nights, len(CORPORA)))
            for turn, beyond, alarms in nights_of(night, spare, some, asked.seed + number):
                nights.append((name, turn, beyond, alarms))
                print(f"{name}: night {turn}: {beyond:.3f}{' alarm' * alarms}", flush=True)
            gates[name] = open_store(night.store).manifest.options.max_answer_change
            other = where / str((number + 1) % len(CORPORA))
            names = [next(turns) for _ in range(number, asked.faults, len(CORPORA))]
            for one in faults_of(night, name, names, other, where):
                told.append(one)
                print(
                    f"{one.corpus}: {one.fault}: {one.change:.3f} {one.caught} {one.named}",
                    flush=True,
                )
        if asked.cost:
            spent, embedding = cost(asked.cost, where / "cost")
            share = f"{100 * spent / embedding:.2f} % ({spent:.1f} s)"
            rows.append((f"300 queries on {asked.cost:,} rows, of embedding them", share, "<= 2 %"))
    rows += table(told, nights, gates)
    data = {"faults": [vars(one) for one in told], "nights": nights, "gates": gates}
    report(f"watch, seed {asked.seed}", rows, asked.output, data)
    return 0


def table(
    told: list[Told], nights: list[tuple[str, int, float, bool]], gates: dict[str, float | None]
) -> list[tuple[str, str, str]]:
    """Return what was measured, and the bars."""
    counted = [one for one in told if one.counts]
    good = sum(one.caught and one.named for one in counted)
    alarms = sum(alarm for *_, alarm in nights)
    rows = [
        (f"faults that change {COUNTS:.0%} of the answers", f"{len(counted)} of {len(told)}", ""),
        ("of them caught and named", f"{good} of {len(counted)}", ">= 95 %"),
        (f"false alarms in {len(nights)} ordinary nights", str(alarms), "<= 3"),
    ]
    for name, gate in gates.items():
        largest = max((beyond for corpus, _, beyond, _ in nights if corpus == name), default=0.0)
        rows.append((f"gate of {name}", f"{gate}", f"largest night {largest:.3f}"))
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
