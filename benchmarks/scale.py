"""Plan and commit of very many files and units in one process, without any file or shard.

    python -m benchmarks.scale [--units 600000] [--files 1000000] [--folder FOLDER] [--output FILE]

The listing is made up: names of gs://, 50 bytes a path. As many files as leave about --units have
a unit each, the others are small and share units. The nights are a first run, an unchanged one, one
with 1 % of the files changed anywhere, and one with 1 % changed in one folder. Comparing, the plan,
the settling, the parts of both tables and the manifest are the functions of `embed`; making up the
listing, what workers leave of opened files, and the records is not in the seconds. Each night is a
process. A row has the processor seconds of a step, the peak memory of the process while it ran
(imported packages included), and the bytes that it wrote.
"""

import argparse
import contextlib
import hashlib
import resource
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common import report
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    get_column,
    get_numbers,
    replace_column,
    replace_rows,
)
from sentence_beam.transforms.corpus import Columns, InputFile, Span
from sentence_beam.transforms.space import Recipe, Space
from sentence_beam.transforms.steps.commit.commit_run import settle_run
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import footers
from sentence_beam.transforms.steps.plan.elements import FilesToLookInto, PlannedFiles, pack_table
from sentence_beam.transforms.steps.plan.list_files import compare_rows
from sentence_beam.transforms.steps.plan.planned import PLANNED, OpenedFile
from sentence_beam.transforms.steps.plan.whole_plan import record
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.made_units import assign_stretch, pack
from sentence_beam.transforms.store.runs.recorded_plan import SPAN, list_planned_spans, read_plan
from sentence_beam.transforms.store.runs.run_end import finish
from sentence_beam.transforms.store.runs.run_result import now
from sentence_beam.transforms.store.tables.names import STRETCHES, find_stretches
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, FILES

FOLDER = "gs://bucket/collection/"
ROWS = 1000  # of a unit
LARGE, SMALL = 200_000, 3000  # bytes of a file
UNIT_TOKENS = 16_500  # so that a small file has less than a sixteenth of them
FILES_A_GROUP = 13.2  # on average
DIM = 384
SPACE = Space(
    weights="w", tokenizer="t", architecture="bert:x", max_tokens=256, prompt="",
    pooler={"name": "mean"}, calibration=None, normalize=True, truncate_dim=None,
    precision="float32", dtype="float32", dim=DIM,
)  # fmt: skip
NIGHTS = ("first", "unchanged", "1 % anywhere", "1 % in one folder")


@dataclass
class Steps:
    """The steps that were measured, and the store whose growth is counted."""

    store: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, night: str, name: str) -> Iterator[None]:
        """Measure what the block does."""
        written = bytes_in(self.store)
        forget_peak()
        start = time.process_time()
        yield
        self.rows.append(
            {
                "night": night, "step": name, "seconds": round(time.process_time() - start, 2),
                "MB peak": round(peak_mb()),
                "MB written": round((bytes_in(self.store) - written) / 1e6, 2),
            }
        )  # fmt: skip


def bytes_in(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def forget_peak() -> None:
    """Let the peak memory of this process begin anew, if the kernel can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The peak memory of this process since `forget_peak`, else since its start."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def listing(files: int, units: int) -> pa.Table:
    """Rows of `files` of a listing, sorted by path; the small files are anywhere among them."""
    small = round((files - units) * FILES_A_GROUP / (FILES_A_GROUP - 1))
    sizes = np.full(files, LARGE)
    sizes[np.random.default_rng(1).permutation(files)[:small]] = SMALL
    columns = {
        "path": [f"{n // 1000:05d}/{n:09d}-of-the-made-up-collection.txt" for n in range(files)],
        "folder": [FOLDER] * files,
        "format": ["text"] * files,
        "checksum": checksums(np.arange(files)),
        "version": [f"{1_700_000_000_000_000 + 997 * n}" for n in range(files)],
        "size": sizes,
        **{name: np.zeros(files, np.int64) for name in FILE_COUNTS},
    }
    found = [
        pa.array(columns[each.name], each.type)
        if each.name in columns
        else pa.nulls(files, each.type)
        for each in FILES
    ]
    return pa.table(found, schema=FILES)


def checksums(numbers: np.ndarray) -> list[str]:
    """Checksums as a listing of gs:// has them, of files with these numbers."""
    return [f"crc32c:{zlib.crc32(number.tobytes()):08x}" for number in numbers.astype(np.int64)]


def changed(listed: pa.Table, night: int) -> pa.Table:
    """The listing of a later night: changed files have another version and another checksum."""
    count = len(listed) // 100
    places = np.arange(0)
    if NIGHTS[night] == "1 % anywhere":
        places = np.sort(np.random.default_rng(night).permutation(len(listed))[:count])
    elif NIGHTS[night] == "1 % in one folder":
        places = np.arange(len(listed) // 2, len(listed) // 2 + count)
    now = listed.take(pa.array(places))
    now = replace_column(
        now, "version", pc.binary_join_element_wise(now["version"], str(night), "-")
    )
    now = replace_column(
        now, "checksum", pa.array(checksums(places + night * len(listed)), pa.string())
    )
    return replace_rows(listed, places, now)


def opened(listed: pa.Table) -> pa.Table:
    """Rows `PLANNED` of files as workers leave them that opened each: one span a file."""
    count = len(listed)
    zero, one = pa.array(np.zeros(count, np.int64)), pa.array(np.arange(count + 1, dtype=np.int32))
    none = pa.array(np.zeros(count + 1, np.int32))
    tokens = pa.array(get_numbers(listed, "size") // 4)
    row_groups = pa.ListArray.from_arrays(none, pa.array([], pa.int64()))
    values = [zero, zero, get_column(listed, "size"), pa.nulls(count, pa.int64()), tokens, zero]
    spans = pa.StructArray.from_arrays([*values, row_groups], fields=list(SPAN))
    columns = {name: listed.column(name) for name in FILES.names} | {
        "carried": make_mask_array(np.zeros(count, bool)),
        "spans": pa.ListArray.from_arrays(one, spans),
        "kept": pa.repeat("[]", count),
        "lacks": pa.ListArray.from_arrays(none, pa.array([], pa.string())),
        "ms": pa.array(np.ones(count)),
    }
    found = [columns.get(each.name, pa.nulls(count, each.type)) for each in PLANNED]
    return pa.table(found, schema=PLANNED)


def open_made_up(file: InputFile, job: EmbedJob) -> OpenedFile:
    """What is in a file that the planning step opens itself, because of others of its group."""
    return OpenedFile(file, (Span(file, 0, 0, file.size, tokens=file.size // 4),))


def made_up(plan: pa.Table, run: Run) -> Iterator[list[UnitRecord]]:
    """The records that embedding the spans of a plan would leave, a stretch at a time."""
    found = list_planned_spans(plan)
    paths = plan.column("path")
    starts = np.searchsorted(find_stretches(get_column(found, "name")), np.arange(STRETCHES + 1))
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        some = found.slice(start, stop - start)
        files = paths.take(get_column(some, "place")).to_pylist()
        rows = zip(some.to_pylist(), files, strict=True)
        yield [record_of(span, file, run) for span, file in rows]


def record_of(span: dict[str, Any], file: str, run: Run) -> UnitRecord:
    """The record of a span."""
    digest = hashlib.sha256((span["name"] + run.id).encode()).hexdigest()
    is_group = span["name"].startswith("f") and span["stop"] is None
    return UnitRecord(
        path=layout.shard(span["name"], digest[:16]), unit=span["name"],
        file="" if is_group else file,
        range=(span["start"], span["stop"]), rows=ROWS, read=ROWS, rejected=0, rejects=None,
        tokens=20 * ROWS, truncated=0, lost=0, bytes=ROWS * (4 * DIM + 40), sha256=digest,
        checksum=f"crc32c:{digest[:8]}", form=run.form,
        embedded=ROWS, real=20 * ROWS, padded=21 * ROWS, run=run.id,
    )  # fmt: skip


def run_of(store: Path, night: int, last: Manifest | None) -> Run:
    """The run of a night."""
    return Run(
        root=str(store), id=f"20260101T{night:06d}Z-00000{night}", space=SPACE, partition="file",
        unit_tokens=UNIT_TOKENS, globs=(f"{FOLDER}**",), options=RememberedOptions(model="m"),
        versions={},
        started=now(), previous=last.run if last else None, version=last.version if last else None,
        previous_digest=last.digest if last else None,
        previous_rows=last.rows.written if last else 0,
    )  # fmt: skip


def job_of(run: Run, last: Manifest | None) -> EmbedJob:
    """The work of a run, which carries over and reuses what it can."""
    has_last = last is not None
    return EmbedJob(run, Columns("text"), Recipe("m"), carry=has_last, reuse=has_last)


def measure_night(store: Path, night: int, listing_file: Path) -> list[dict[str, Any]]:
    """Do the serial steps of a run, as a process does them; returns a row a step."""
    pa.set_cpu_count(2)
    footers.open_file = open_made_up
    steps = Steps(store)
    name = NIGHTS[night]
    with pa.memory_map(str(listing_file)) as file:
        listed = pa.ipc.open_file(file).read_all()
    last = read_manifest(str(steps.store))
    run = run_of(steps.store, night, last)
    job = job_of(run, last)
    with steps.step(name, "listing compared"):
        before = last.read_files() if last else FILES.empty_table()
        found = list(compare_rows(listed, before, job))
        del before, listed
    looked = [
        PlannedFiles(pack_table(opened(item.table))) if isinstance(item, FilesToLookInto) else item
        for item in found
    ]
    del found
    with steps.step(name, "plan put together, written, handed out"):
        for item in record(looked, job, None):
            assert isinstance(item, list), item  # else it is a problem
    del looked
    travelling = []
    took = 0.0
    forget_peak()
    for number, records in enumerate(made_up(read_plan(run.root, run.id).files, run)):
        start = time.process_time()
        if records:
            travelling.append((number, pack(values for _, values in map(assign_stretch, records))))
        took += time.process_time() - start
    travelled = sum(len(data) for _, data in travelling) / 1e6
    steps.rows.append(
        {
            "night": name, "step": f"units packed by stretch ({travelled:.1f} MB travel)",
            "seconds": round(took, 2), "MB peak": round(peak_mb()), "MB written": 0.0,
        }
    )  # fmt: skip
    with steps.step(name, "settled"):
        fact = settle_run(travelling, run)
    assert fact.settled is not None, fact.problem
    with steps.step(name, "manifest written"):
        result = finish(run, fact.settled)
    assert result.status == "committed", result.message
    return steps.rows


def measure_readers(store: Path) -> tuple[list[dict[str, Any]], float]:
    """Read what `search` and `serve` read of the last snapshot; returns the row of the step, and
    the bytes a unit that they hold.
    """
    steps = Steps(store)
    with steps.step("readers", "Manifest.shards"):
        manifest = read_manifest(str(steps.store))
        assert manifest is not None
        shards = manifest.shards
    return steps.rows, shards.nbytes / max(1, len(shards))


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def write_listing(listed: pa.Table, path: Path) -> None:
    """Write a listing to be read by `measure_night`."""
    with pa.ipc.new_file(str(path), FILES) as writer:
        writer.write_table(listed.combine_chunks())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=600_000)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the store is made (default: a temporary folder)")
    parser.add_argument("--output", help="also write the figures as JSON")
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        store = Path(folder, "store")
        store.mkdir()
        listed = listing(args.files, args.units)
        for night in range(len(NIGHTS)):
            listed = changed(listed, night)
            write_listing(listed, Path(folder, "listing"))
            found += alone(measure_night, store, night, Path(folder, "listing"))
        reading, each = alone(measure_readers, store)
        found += reading
        manifest = read_manifest(str(store))
        assert manifest is not None
        parts = {"files": manifest.files, "units": manifest.units}
        totals = {name: {"rows": t.rows, "parts": len(t.parts)} for name, t in parts.items()}
    print_table(found)
    rows = [(name, f"{t['rows']:,} rows", f"{t['parts']:,} parts") for name, t in totals.items()]
    rows.append(("Manifest.shards", f"{each:.0f} bytes a unit", ""))
    data = {"steps": found, "tables": totals, "shards_bytes": each}
    report(f"{args.units:,} units, {args.files:,} files", rows, args.output, data)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the steps as a table of Markdown."""
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(map(str, row.values()))} |")


if __name__ == "__main__":
    main()
