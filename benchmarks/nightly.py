"""Nights over a changing collection against a full run, and how they grow with it.

    python -m benchmarks.nightly [--sentences FOLDER] [--rows 50000]
        [--growth 10000 100000 1000000] [--output FILE]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2); docstrings of the standard library and
of installed packages fill up to --rows. One process. From every time that of an empty run is taken
off, which is printed beside. For the growth a stub replaces the model, so that
everything but the forward pass is measured.
"""

import argparse
import contextlib
import io
import random
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import SENTENCES, real_texts, report
from benchmarks.stub import stub_encoder, tiny_model
from sentence_beam.pipelines import embed
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.base.imports import keep_all
from sentence_beam.transforms.store import open_store

PARTITIONS = ("file", "content")
ROWS_PER_FILE = 5000
ROWS_PER_GROUP = 1000
CHANGED = 0.01
# the cheapest counts, since a machine slows down as it warms up
ROUNDS = 3
BARS = {"unchanged": "0.5 %", "1 % changed": "3 %", "shuffled": "10 %"}  # in processor seconds

Rows = list[tuple[str, str]]
Table = list[tuple[str, str, str]]  # what, measured, bar
Grown = dict[tuple[int, str], "Cost"]  # by rows and night


def write_files(rows: Rows, folder: Path) -> None:
    """The rows in files of a few thousand; what was there before is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for start in range(0, len(rows), ROWS_PER_FILE):
        ids, found = zip(*rows[start : start + ROWS_PER_FILE], strict=True)
        table = pa.table({"id": ids, "text": found})
        pq.write_table(
            table, folder / f"{start // ROWS_PER_FILE:05d}.parquet", row_group_size=ROWS_PER_GROUP
        )


def changed(rows: Rows, rng: random.Random) -> Rows:
    """The rows with one in a hundred edited, spread over all of them."""
    edited = set(rng.sample(range(len(rows)), max(1, int(CHANGED * len(rows)))))
    return [
        (i, f"{text} (edited)") if number in edited else (i, text)
        for number, (i, text) in enumerate(rows)
    ]


@dataclass(frozen=True)
class Cost:
    """Wall and processor seconds; the latter bear a busy machine better."""

    wall: float
    cpu: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.wall - other.wall, self.cpu - other.cpu)

    def __truediv__(self, by: float) -> "Cost":
        return Cost(self.wall / by, self.cpu / by)

    @classmethod
    def least(cls, costs: list["Cost"]) -> "Cost":
        """The shortest of the wall times, and of the processor times."""
        return cls(min(cost.wall for cost in costs), min(cost.cpu for cost in costs))


@dataclass(frozen=True)
class Night:
    """The cost of a run, and the manifest's counts of rows by the origin of their vectors."""

    cost: Cost
    work: dict[str, int]


def night(folder: Path, store: Path, *flags: str) -> Night:
    """Run `embed`; its summary is kept from the terminal."""
    arguments = [
        "--input",
        f"{folder}/*.parquet",
        "--store",
        str(store),
        "--id-column",
        "id",
        *flags,
    ]
    wall, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        code = embed.main(arguments)
    cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
    assert code == 0, f"embed ended with {code}"
    return Night(cost, open_store(str(store)).manifest.data["work"])


def cheapest(found: list[Night]) -> Night:
    """The lowest cost of nights that did the same work."""
    return Night(Cost.least([each.cost for each in found]), found[0].work)


def nights(rows: Rows, where: Path, partition: str, *flags: str) -> dict[str, Night]:
    """A full run and the nights after it, into one store."""
    folder, store, rng = where / "in", where / "store", random.Random(0)
    shutil.rmtree(store, ignore_errors=True)
    write_files(rows, folder)
    found = {"full": night(folder, store, "--partition", partition, *flags)}
    found["unchanged"] = cheapest([night(folder, store) for _ in range(ROUNDS)])
    edited = []
    for _ in range(ROUNDS):
        rows = changed(rows, rng)
        write_files(rows, folder)
        edited.append(night(folder, store))
    found["1 % changed"] = cheapest(edited)
    if partition == "content":
        write_files(rng.sample(rows, len(rows)), folder)
        found["shuffled"] = night(folder, store)
        assert found["shuffled"].work["embedded"] == 0, "a shuffled row was encoded again"
    shutil.rmtree(store)
    return found


def start_up(where: Path, partition: str, *flags: str) -> Cost:
    """Return the cost of a run without rows, the lower of two."""
    folder = where / "empty"
    folder.mkdir(exist_ok=True)
    pq.write_table(
        pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}),
        folder / "a.parquet",
    )
    stores = [where / f"empty-{partition}-{number}" for number in range(2)]
    costs = [night(folder, store, "--partition", partition, *flags).cost for store in stores]
    for store in stores:
        shutil.rmtree(store)
    return Cost.least(costs)


def against_full(rows: Rows, where: Path, *flags: str) -> tuple[Table, dict[str, Any]]:
    """Every night over the full run of its partition."""
    table: Table = []
    data: dict[str, Any] = {}
    for partition in PARTITIONS:
        empty, found = start_up(where, partition, *flags), nights(rows, where, partition, *flags)
        full = found["full"].cost - empty
        table.append((f"{partition}: an empty run", f"{empty.wall:.2f} s", "taken off below"))
        table.append(
            (f"{partition}: full run", f"{full.wall:.1f} s", f"{len(rows) / full.wall:,.0f} rows/s")
        )
        for name, bar in BARS.items():
            if name in found:
                took = found[name].cost - empty
                ratio = (
                    f"{100 * took.wall / full.wall:.2f} % (CPU {100 * took.cpu / full.cpu:.2f} %)"
                )
                said = ", ".join(f"{n:,} {what}" for what, n in found[name].work.items() if n)
                table.append(
                    (f"{partition}: {name}", ratio, f"bar {bar}; {took.wall:.2f} s; {said}")
                )
        data[partition] = {
            "empty": asdict(empty),
            **{name: asdict(one) for name, one in found.items()},
        }
    return table, data


def growth(sizes: list[int], where: Path) -> tuple[Table, dict[str, Any]]:
    """The cost of a row in every kind of night, each size over the one before."""
    flags = ("--model", str(tiny_model(where / "model")), "--dtype", "float32")
    table: Table = []
    data: dict[str, Any] = {}
    with stub_encoder():
        for partition in PARTITIONS:
            rounds = [grown(sizes, where, partition, *flags) for _ in range(ROUNDS)]
            least = {key: Cost.least([costs[key] for costs in rounds]) for key in rounds[0]}
            data |= {
                f"{partition} {size} {name}": asdict(cost) for (size, name), cost in least.items()
            }
            table += [
                (f"{partition}, {size:,} rows: {name}", *per_row(least, sizes, size, name))
                for size, name in least
                if size
            ]
    return table, data


def grown(sizes: list[int], where: Path, *flags: str) -> Grown:
    """Return the cost of every night, by rows and name; 0 rows are an empty run.

    The first of `flags` is the partition.
    """
    found = {(0, "full"): start_up(where, *flags)}
    for size in sizes:
        rows = [
            (f"id{number}", f"the text of row {number} of a large collection")
            for number in range(size)
        ]
        found |= {(size, name): one.cost for name, one in nights(rows, where, *flags).items()}
    return found


def per_row(least: Grown, sizes: list[int], size: int, name: str) -> tuple[str, str]:
    """Microseconds a row, and how many times those of the size before."""
    cost = (least[size, name] - least[0, "full"]) / (1e-6 * size)
    measured = f"{cost.wall:.2f} (CPU {cost.cpu:.2f}) us/row"
    if size == sizes[0]:
        return measured, ""
    smaller = sizes[sizes.index(size) - 1]
    last = (least[smaller, name] - least[0, "full"]) / (1e-6 * smaller)
    return (
        measured,
        f"{cost.wall / last.wall:.2f}x (CPU {cost.cpu / last.cpu:.2f}x) a row of the size before",
    )


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument(
        "--rows", type=int, default=50_000, help="0 leaves the nights of the real model out"
    )
    p.add_argument("--growth", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    p.add_argument("--dtype", default="auto")
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    keep_all()  # as a command does
    table: Table = []
    data: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if args.rows:
            rows = [
                (f"id{number}", text)
                for number, text in enumerate(real_texts(args.sentences, args.rows))
            ]
            table, data = against_full(rows, Path(folder), "--dtype", args.dtype)
        if args.growth:
            grown = growth(sorted(args.growth), Path(folder))
            table, data = table + grown[0], data | grown[1]
    report(
        f"nights, {args.rows:,} sentences, MiniLM-L6; growth with a stub encoder",
        table,
        args.output,
        data,
    )


if __name__ == "__main__":
    main()
