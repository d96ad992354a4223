"""Whether the gate of watched queries catches nights that answer worse, and lets others pass.

    python -m benchmarks.watch [--rows 600] [--faults 40] [--nights 300] [--seed 1] [--cost ROWS]
        [--output FILE.json]

Five corpora are made of what is installed: docstrings of the standard library, docstrings of
packages, paragraphs of package descriptions, long docstrings, and comments of the standard library.
Each is a store of ten files that watches drawn queries. After seven nights it takes the gate that
the summary recommends. Then follow ordinary nights (0 to 5 % of the rows deleted, edited or
replaced, 0 to 3 % added, on every second night in neighbouring rows), and on copies of the store
the faults. A fault counts if it changes 15 % of the answers or more. It is caught if the run ends
with exit status 3, and named if the line names its cause. All runs go through the commands, with
one model for all of them and the steps of Beam's graph called by the plain runner of the tests.
`--cost` times 300 queries over so many rows with an index, in a
night that edits 1 % of them, against embedding all rows.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import real_texts, report
from benchmarks.watch_corpora import CORPORA
from benchmarks.watch_faults import COUNTS, FAULTS, Told, faults_of
from benchmarks.watch_nights import Night, begin, nights_of, one_model
from sentence_beam.transforms.steps.watch.ask import current_queries
from sentence_beam.transforms.steps.watch.watch_run import compare_with_kept
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.watched import read_queries
from tests.helpers.cached_beam import cached_beam
from tests.helpers.plain_runner import plain_runner

ROWS_PER_FILE = 10_000  # of the cost


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
    with tempfile.TemporaryDirectory() as folder, one_model(), cached_beam(), plain_runner():
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
