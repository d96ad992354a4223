"""Ten million units on paper: serial steps with all of them, one stretch and some elements of it
for all that workers do.

    python -m benchmarks.scale --counted --units 10000000 [--elements 4]

Nothing is listed, and no shard has bytes. Files are made up, of ten units each, and so are the
plan's rows: those of an element that was really planned, with the names of the others. What a run
does is done by its own functions:

- one process, with all units: the elements of the listing; the plan of a first and of a later
  night, from packed files; the commit, from 64 stretches.
- workers: `--elements` of the first stretch are planned on both nights, its ranges of carried
  units in these elements are read and packed, and the stretch is settled. Seconds are counted for
  all in proportion; memory is that of one process, which has the whole plan when it settles.

Making things up is not in the seconds, but may be in the memory. `benchmarks.scale` without
--counted lists files and makes all records of a million units.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import scale

UNITS_A_FILE = 10
ROWS = 1000
MOST_SECONDS = 30  # a million units, of one process


def name_of(number: int) -> str:
    """Return the relative path of a file."""
    return f"{number:08d}.parquet"


def listed(where: Path, units: int) -> list[Any]:
    """Return the elements of the listing of all files, which share one version."""
    from sentence_beam.transforms.corpus import InputFile
    from sentence_beam.transforms.steps.plan.elements import by_key_ranges

    template = where / "in" / "template"
    template.parent.mkdir(exist_ok=True)
    if not template.exists():
        rows = ROWS * UNITS_A_FILE
        table = pa.table({"text": pa.array([scale.TEXT] * rows)})
        pq.write_table(table, template, row_group_size=ROWS)
    size = template.stat().st_size
    folder = str(where / "in")
    files = (
        InputFile(f"{folder}/{name_of(n)}", name_of(n), "parquet", "", size, "", "")
        for n in range(units // UNITS_A_FILE)
    )
    return list(by_key_ranges(files, None))


def sampled(elements: list[Any], number: int) -> list[Any]:
    """Return some elements that lie within the first stretch."""
    from sentence_beam.transforms.store.runs.stretches import stretch_of_file

    inside = [one for one in elements[1:] if not stretch_of_file(one.files[-1].relative)]
    return inside[:: max(1, len(inside) // number)][:number]


def with_inputs(where: Path, elements: list[Any]) -> list[Any]:
    """Make the input files of elements, as links to one, with that one's version."""
    from sentence_beam.transforms import storage

    for element in elements:
        for file in element.files:
            if not os.path.exists(file.path):
                os.symlink(where / "in" / "template", file.path)
    template = str(where / "in" / "template")
    found = storage.storage_of(template).stat(template)
    assert found is not None
    return [
        replace(one, files=tuple(replace(file, version=found.version) for file in one.files))
        for one in elements
    ]


class Clock:
    """Seconds of the processor, without those of what is made up."""

    def __init__(self) -> None:
        self.made_up = 0.0
        self._start = time.process_time()

    def without(self, made: Iterator[Any]) -> Iterator[Any]:
        """Yield what is made up, which takes no time."""
        while True:
            start = time.process_time()
            item = next(made, None)
            self.made_up += time.process_time() - start
            if item is None:
                return
            yield item

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return time.process_time() - self._start - self.made_up


def encoded(item: Any) -> bytes:
    """Return an element as it travels."""
    return scale.ON_THE_WAY.encode(item)


def list_all(where: Path, units: int, elements: int) -> dict[str, float]:
    """Cut the listing of all files into elements, and keep some of them."""
    start = time.process_time()
    found = listed(where, units)
    size = sum(len(encoded(element)) for element in found)
    seconds = time.process_time() - start
    (where / "elements").write_bytes(encoded(sampled(found, elements)))
    return {"work": seconds, "elements": len(found), "bytes": size}


def kept_elements(where: Path) -> list[Any]:
    """Return the elements that are planned."""
    kept: list[Any] = scale.ON_THE_WAY.decode((where / "elements").read_bytes())
    return kept


def look(where: Path, units: int) -> dict[str, float]:
    """Plan some elements, as workers do."""
    from sentence_beam.transforms.steps.plan.planner import FilePlanner
    from sentence_beam.transforms.store.runs.plan import PlannedFile

    some = with_inputs(where, kept_elements(where))
    job = scale.resolved(where, ROWS).job
    scale.list_by_ranges(Path(job.root, "embeddings"))
    clock = Clock()
    looked = []
    for element in some:
        planner = FilePlanner(job, element.keys)
        planned = [
            item for item in planner.plan_all(element.files) if isinstance(item, PlannedFile)
        ]
        assert len(planned) == len(element.files)
        looked.append(encoded(planner.in_short(planned)))
    seconds = clock.seconds
    (where / "looked").write_bytes(encoded(looked))
    found = UNITS_A_FILE * sum(len(element.files) for element in some)
    return {"work": seconds / found * units, "units": found}


def record_first(where: Path, units: int) -> dict[str, float]:
    """Put the plan of a first night together, from packed files of all units."""
    from sentence_beam.transforms.steps.plan.files import record

    job = scale.resolved(where, ROWS).job
    clock = Clock()
    data = clock.without(all_packed(where, units))
    found = [scale.ON_THE_WAY.decode(one) for one in data]
    handed_out = sum(len(encoded(item)) for item in record(found, job, None))
    (where / "run").write_text(job.run.id)
    return {"work": clock.seconds, "bytes": handed_out}


def all_packed(where: Path, units: int) -> Iterator[bytes]:
    """Yield the files of all elements packed, each like a file that was planned."""
    from sentence_beam.transforms.base.arrow import table_of
    from sentence_beam.transforms.steps.plan.elements import PlannedFiles

    looked = scale.ON_THE_WAY.decode((where / "looked").read_bytes())
    example = scale.ON_THE_WAY.decode(looked[0]).packed
    rows = table_of(example.rows).slice(0, UNITS_A_FILE)
    for element in listed(where, units):
        yield encoded(PlannedFiles((), packed=packed_like(example, rows, element)))


def packed_like(example: Any, rows: pa.Table, element: Any) -> Any:
    """Return the files of an element packed as the first of an example, which has these rows."""
    from sentence_beam.transforms.base.arrow import parquet_bytes
    from sentence_beam.transforms.store.runs.packed_files import PackedFiles

    count = len(element.files)
    names = pa.array([file.relative for file in element.files])
    paths = pa.array([file.path for file in element.files])
    files = example.table.take(pa.array(np.zeros(count, np.int64)))
    each = np.repeat(np.arange(count), len(rows))
    all_rows = rows.take(pa.array(np.tile(np.arange(len(rows)), count)))
    tails = [name.partition("-")[2] for name in rows.column("name").to_pylist()]
    own = pa.array([f"{file.key}-{tail}" for file in element.files for tail in tails])
    for name, values in (("file", names), ("path", paths)):
        files = _with(files, name, values)
        all_rows = _with(all_rows, name, values.take(pa.array(each)))
    all_rows = _with(all_rows, "name", own)
    packed, packed_rows = (parquet_bytes(table, compression="zstd") for table in (files, all_rows))
    return PackedFiles(element.keys, frozenset(), packed, packed_rows, example.examples)


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


def settle(where: Path, units: int) -> dict[str, float]:
    """Settle the first stretch; shards of the sampled elements alone have a file."""
    from sentence_beam.transforms.store.runs.record_bytes import pack
    from sentence_beam.transforms.store.runs.recorded_plan import shared_plan
    from sentence_beam.transforms.store.runs.settled import Settler

    job = scale.resolved(where, ROWS).job
    run = (where / "run").read_text()
    looked = {file.relative for one in kept_elements(where) for file in one.files}
    spans = shared_plan(job.root, run).spans_in(0)
    packed = [pack(unit) for unit in made_up(spans, looked, job.root)]
    del spans
    clock = Clock()
    found = Settler(job.root, run).settle(0, packed)
    assert found.fault is None, found.fault
    (where / "settled").write_bytes(encoded(found))
    return {"work": clock.seconds / len(packed) * units, "units": len(packed)}


def made_up(spans: list[Any], looked: set[str], root: str) -> Iterator[Any]:
    """Yield the records of planned spans."""
    from sentence_beam.transforms.store import layout
    from sentence_beam.transforms.store.records import UnitRecord

    size = ROWS * (4 * scale.DIM + 40)
    for span in spans:
        path = layout.shard(span.name, "0" * 16)
        if span.file in looked:
            full = Path(root, path)
            full.parent.mkdir(parents=True, exist_ok=True)
            full.touch()
            os.truncate(full, size)
        yield UnitRecord(
            path=path, unit=span.name, file=span.file, range=(span.start, span.stop),
            rows=ROWS, read=ROWS, rejected=0, rejects=None, tokens=ROWS, truncated=0, lost=0,
            bytes=size, sha256=scale.digest_of_nothing(size), embedded=ROWS, real=ROWS,
            padded=ROWS,
        )  # fmt: skip


def commit(where: Path, units: int) -> dict[str, float]:
    """Commit all stretches, of which the others are like the first."""
    from sentence_beam.transforms.store.runs.commit import settle as settle_all
    from sentence_beam.transforms.store.runs.finish import finish

    run = replace(scale.resolved(where, ROWS).job.run, id=(where / "run").read_text())
    first = scale.ON_THE_WAY.decode((where / "settled").read_bytes())
    stretches = [shifted(first, number) for number in range(64)]
    clock = Clock()
    result = finish(run, settle_all(run, stretches, []))
    assert result.status == "committed", result.message
    return {"work": clock.seconds}


def shifted(first: Any, number: int) -> Any:
    """Return a stretch like the first, with the names of another."""

    def moved(name: str) -> str:
        if not name:
            return name
        return f"{int(name[:2], 16) + 4 * number:02x}{name[2:]}"

    bounds = ("first", "last", "first_file", "last_file")
    parts = tuple(
        replace(part, **{name: moved(getattr(part, name)) for name in bounds})
        for part in first.parts
    )
    return replace(first, number=number, parts=parts)


def record_later(where: Path, units: int) -> dict[str, float]:
    """Put the plan of a later night together, from packed files of all units."""
    from sentence_beam.transforms.steps.plan.files import record
    from sentence_beam.transforms.store.runs.carried_ranges import CarriedRange

    job = scale.resolved(where, ROWS).job
    clock = Clock()
    data = clock.without(all_packed(where, units))
    found = [scale.ON_THE_WAY.decode(one) for one in data]
    ranges = [item for item in record(found, job, None) if isinstance(item, CarriedRange)]
    seconds = clock.seconds
    (where / "ranges").write_bytes(encoded(ranges))
    return {"work": seconds, "ranges": len(ranges)}


def carry(where: Path, units: int) -> dict[str, float]:
    """Read and pack the carried units of ranges within the first stretch."""
    from sentence_beam.transforms.store.manifest import read_manifest
    from sentence_beam.transforms.store.runs.carried_ranges import units_of_range
    from sentence_beam.transforms.store.runs.record_bytes import pack

    last = read_manifest(f"{where}/store")
    assert last is not None
    ranges = scale.ON_THE_WAY.decode((where / "ranges").read_bytes())
    inside = [item for item in ranges[1:] if "" < item.keys.high < "04"][::8]
    clock = Clock()
    packed = [len(pack(unit)) for item in inside for unit in units_of_range(item, last)]
    return {"work": clock.seconds / max(1, len(packed)) * units, "units": len(packed)}


def counted(where: Path, args: argparse.Namespace) -> list[str]:
    """Run all steps, and return a table of them."""
    units = args.units
    works: dict[str, tuple[Callable[[Path, int], dict[str, float]], str]] = {
        "first night: elements of the listing": (
            partial(list_all, elements=args.elements),
            scale.ONE,
        ),
        "first night: looking at files": (look, scale.WORKERS),
        "first night: the plan put together": (record_first, scale.ONE),
        "first night: settle": (settle, scale.WORKERS),
        "first night: commit": (commit, scale.ONE),
        "later night: looking at files": (look, scale.WORKERS),
        "later night: the plan put together": (record_later, scale.ONE),
        "later night: carried units read and packed": (carry, scale.WORKERS),
    }
    lines = [
        f"| {units:,} units | done by | seconds a million units | peak of a process | measured |",
        "|---|---|---|---|---|",
    ]
    for name, (work, who) in works.items():
        found = scale.measured(work, where, units)
        print(name, found, file=sys.stderr, flush=True)
        lines.append(row(name, who, found, units))
    return lines


def row(name: str, who: str, found: dict[str, float], units: int) -> str:
    """Return a step's row."""
    measured = found.get("units", units)
    what = "all units"
    if measured < units:
        what = f"{measured:,} units"
    seconds = bold(found["work"] / units * 1e6, who)
    return f"| {name} | {who} | {seconds} | {bold_memory(found['peak'])} | {what} |"


def bold(seconds: float, who: str) -> str:
    """Return seconds a million units; those of one process above the bar in bold."""
    text = f"{seconds:,.1f}"
    return f"**{text}**" if who == scale.ONE and seconds > MOST_SECONDS else text


def bold_memory(peak: float) -> str:
    """Return memory in MB, above the bar in bold."""
    text = f"{peak:,.0f} MB"
    return f"**{text}**" if peak > scale.MOST_MEMORY else text
