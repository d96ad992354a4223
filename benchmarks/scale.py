"""A billion rows on paper: planning and committing 100,000 units over 20,000 files, without
embedding them.

    python -m benchmarks.scale [--files 20000] [--groups 5] [--rows 10000] [--units N] [--small]
        [--no-pipeline] [--output FILE]
    python -m benchmarks.scale --counted --units 10000000

--counted counts what is too much to run: see `benchmarks.scale_counted`.

--units N takes N units of 1,000 rows, ten to a file. The last table says which steps are one
process, and up to which number of units: until one takes MOST_SECONDS or MOST_MEMORY, in
proportion to what was measured.

The files are real Parquet with real footers, of texts that compress to nothing; with --small they
are text files of one line, which share units. Records of made-up shards replace the embedding;
each shard is an empty file of the right size. Everything else is what `embed` runs: listing,
footers, plan, ledger, manifest, the comparison with the last snapshot, a worker's first look into
that, and the requests of 200 processes for an hour by a clock that is turned by hand. Every step
runs in a process of its own, so that its peak memory is its own; importing the packages is in it,
starting the interpreter is not in the seconds. Seconds are of the process's own work on the
processor; wall time is beside.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import report

BARS = {"seconds": "60 s", "memory": "1,024 MB"}
TEXT = "forty characters stand here for one row."
DIM = 384
SMALL_UNITS = 20_000
PROCESSES = 200
HOUR = 3600
ONE, WORKERS = "one process", "workers"
DONE_BY = {
    "listing": ONE,
    "looking at files": WORKERS,
    "the plan put together": ONE,
    "carried units read and packed": WORKERS,
    "commit": WORKERS,
}
MOST_SECONDS = 600
MOST_MEMORY = 2048  # MB, beside imported packages
ON_THE_WAY = beam.coders.FastPrimitivesCoder()  # of what has no type that Beam knows


def write_inputs(folder: Path, files: int, groups: int, rows: int) -> None:
    """Files of `groups` row groups of `rows` rows each; every file differs from the others by one
    id.
    """
    folder.mkdir()
    texts = pa.array([TEXT] * (rows * groups))
    for number in range(files):
        ids = pa.array([f"{number}"] * (rows * groups))
        path = folder / f"{number:06d}.parquet"
        pq.write_table(pa.table({"id": ids, "text": texts}), path, row_group_size=rows)


def write_small(folder: Path, files: int) -> None:
    """Text files of one line each."""
    for number in range(files):
        below = folder / f"{number // 1000:04d}"
        if number % 1000 == 0:
            below.mkdir(parents=True)
        with open(below / f"{number:07d}.txt", "w") as file:
            file.write(f"{number} {TEXT}\n")


def resolved(where: Path, unit_tokens: int) -> Any:
    """The job of a night, as `embed` resolves it."""
    from sentence_beam.pipelines.common.embed_options import parser
    from sentence_beam.transforms.steps.options import EmbedOptions
    from sentence_beam.transforms.steps.options.resolve import resolve_run
    from sentence_beam.transforms.store.manifest import read_manifest

    argv = [
        "--input",
        f"{where}/in/**",
        "--store",
        f"{where}/store",
        "--unit-tokens",
        str(unit_tokens),
    ]
    options = EmbedOptions(**vars(parser().parse_args(argv)))
    return resolve_run(options, read_manifest(f"{where}/store"), local=True)


@cache
def digest_of_nothing(size: int) -> str:
    """sha256 of a file that holds nothing but zeros."""
    digest = hashlib.sha256()
    for start in range(0, size, 1 << 20):
        digest.update(bytes(min(1 << 20, size - start)))
    return digest.hexdigest()


def made_up(spans: list[Any], root: str) -> Iterator[Any]:
    """The records that embedding the spans would leave, with shards that hold nothing."""
    from sentence_beam.transforms.corpus.groups import GroupSpan
    from sentence_beam.transforms.store import layout
    from sentence_beam.transforms.store.records import UnitRecord

    for span in spans:
        rows = span.rows if span.rows is not None else max(1, span.tokens // len(TEXT))
        path, size = layout.shard(span.name, "0" * 16), rows * (4 * DIM + 40)
        full = Path(root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.touch()
        os.truncate(full, size)
        yield UnitRecord(
            path=path, unit=span.name,
            file="" if isinstance(span, GroupSpan) else span.file.relative,
            range=(span.start, span.stop), rows=rows, read=rows, rejected=0, rejects=None,
            tokens=span.tokens, truncated=0, lost=0, bytes=size, sha256=digest_of_nothing(size),
            embedded=rows, real=span.tokens, padded=span.tokens,
        )  # fmt: skip


def plan_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Plan a night; what it found is kept for the commit."""
    from sentence_beam.transforms.beam import Plan

    job = resolved(where, unit_tokens).job
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        planned = pipeline | beam.Create(list(job.run.globs)) | Plan(job)
        _ = planned.spans | beam.combiners.Count.Globally() | beam.Map(lambda n: None)
    graph = len(pipeline.to_runner_api().SerializeToString())
    (where / "run").write_text(job.run.id)
    return {"graph bytes": graph}


def list_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Do the work of one process before files are planned: list them."""
    from sentence_beam.transforms.steps.plan.files import file_batches

    job = resolved(where, unit_tokens).job
    listed = [
        ON_THE_WAY.encode(batch) for glob in job.run.globs for batch in file_batches(glob, job)
    ]
    (where / "listed").write_bytes(ON_THE_WAY.encode(listed))
    return {"elements": len(listed), "bytes": sum(map(len, listed))}


def look_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Do the work of all workers in one: compare with the last snapshot, read footers, cut."""
    from sentence_beam.transforms.steps.plan.elements import ListedFiles
    from sentence_beam.transforms.steps.plan.planner import FilePlanner
    from sentence_beam.transforms.store.runs.plan import PlannedFile

    job, looked, held = resolved(where, unit_tokens).job, [], []
    list_by_ranges(Path(job.root, "embeddings"))
    for batch in map(ON_THE_WAY.decode, ON_THE_WAY.decode((where / "listed").read_bytes())):
        if isinstance(batch, ListedFiles):
            planner = FilePlanner(job, batch.keys)
            planned = [
                item for item in planner.plan_all(batch.files) if isinstance(item, PlannedFile)
            ]
            held = [planner]  # until the next one has planned, as a worker does
            looked.append(ON_THE_WAY.encode(planner.in_short(planned)))
    (where / "looked").write_bytes(ON_THE_WAY.encode(looked))
    return {"elements": len(looked), "bytes": sum(map(len, looked)), "held": len(held)}


def list_by_ranges(folder: Path) -> None:
    """Let local stores list ranges of names, as gs:// and s3:// do."""
    import numpy as np

    from sentence_beam.transforms.storage import Entry
    from sentence_beam.transforms.storage.local import LocalStorage

    names = np.sort(np.array(os.listdir(folder) if folder.is_dir() else [], "S"))

    def between(self: Any, place: str, low: str, high: str) -> list[Entry]:
        start, stop = np.searchsorted(names, [low.encode(), (high or "~").encode()])
        paths = [f"{place}/{name.decode()}" for name in names[start:stop]]
        return [Entry(path, os.lstat(path).st_size, "", "") for path in paths]

    LocalStorage.between = between
    LocalStorage.lists_ranges = lambda self, place: True


def record_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Do the work of the process that gets all files: check, record and hand out the plan."""
    from sentence_beam.transforms.steps.plan.files import record
    from sentence_beam.transforms.store.runs.carried_ranges import CarriedRange

    job, looked = (
        resolved(where, unit_tokens).job,
        deque(ON_THE_WAY.decode((where / "looked").read_bytes())),
    )
    # whose bytes are its engine's memory
    found = [ON_THE_WAY.decode(looked.popleft()) for _ in range(len(looked))]
    handed_out, ranges = [], []
    for item in record(found, job, None):
        handed_out.append(len(ON_THE_WAY.encode(item)))
        if isinstance(item, CarriedRange):
            ranges.append(item)
    (where / "run").write_text(job.run.id)
    (where / "ranges").write_bytes(ON_THE_WAY.encode(ranges))
    return {"elements": len(handed_out), "bytes": sum(handed_out), "ranges": len(ranges)}


def carry_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Do the work of all workers in one: read and pack the units of the ranges carried over."""
    from sentence_beam.transforms.store.manifest import read_manifest
    from sentence_beam.transforms.store.runs.carried_ranges import units_of_range
    from sentence_beam.transforms.store.runs.record_bytes import pack

    last = read_manifest(f"{where}/store")
    packed = 0
    for item in ON_THE_WAY.decode((where / "ranges").read_bytes()):
        packed += sum(len(pack(unit)) for unit in units_of_range(item, last))
    return {"bytes": packed}


def commit_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Commit the planned night: the plan read back, the units' records, ledger, manifest,
    pointer.
    """
    from sentence_beam.transforms.store.runs.commit import settle
    from sentence_beam.transforms.store.runs.finish import finish
    from sentence_beam.transforms.store.runs.settled import Settler

    job = resolved(where, unit_tokens).job
    run = replace(job.run, id=(where / "run").read_text())
    packed = packed_units(where, job)
    units = sum(map(len, packed))
    settler = Settler(run.root, run.id)
    start = time.process_time()
    stretches = [settler.settle(number, found) for number, found in enumerate(packed)]
    settled = time.process_time()
    result = finish(run, settle(run, stretches, []))
    assert result.status == "committed", result.message
    return {
        "units": units,
        "settle": settled - start,
        "commit alone": time.process_time() - settled,
    }


def packed_units(where: Path, job: Any) -> list[list[bytes]]:
    """The records of the night's units by stretches, as they come to what settles them."""
    from sentence_beam.transforms.store.manifest import read_manifest
    from sentence_beam.transforms.store.records import carried
    from sentence_beam.transforms.store.runs.record_bytes import pack
    from sentence_beam.transforms.store.runs.stretches import STRETCHES, stretch_of

    previous = read_manifest(job.root)
    units = map(carried, previous.units) if previous else spans_again(where, job)
    packed: list[list[bytes]] = [[] for _ in range(STRETCHES)]
    for unit in units:
        packed[stretch_of(unit.unit)].append(pack(unit))
    return packed


def spans_again(where: Path, job: Any) -> Iterator[Any]:
    """The first night's records, from its plan."""
    from sentence_beam.transforms.store.runs.plan_work import RecordedWork

    run = (where / "run").read_text()
    yield from made_up(RecordedWork(job.root, run).spans(), job.root)


def open_for_search(where: Path, _: int) -> dict[str, float]:
    """Read the manifest without its units, as `search` and `history` do."""
    from sentence_beam.transforms.store import open_store

    manifest = open_store(f"{where}/store").manifest
    return {"rows": manifest.data["rows"]["written"], "space": len(manifest.space.id)}


def open_all_units(where: Path, _: int) -> dict[str, float]:
    """Read every unit's record, as `files` and `verify` do."""
    from sentence_beam.transforms.store import open_store

    return {"units": len(open_store(f"{where}/store").manifest.shard_paths)}


def first_unit(where: Path, _: int) -> dict[str, float]:
    """Read the units of one file, as a worker does before it embeds its first unit."""
    from sentence_beam.transforms.store.manifest import read_manifest
    from sentence_beam.transforms.store.runs.reuse import Known

    manifest = read_manifest(f"{where}/store")
    part = manifest.parts[len(manifest.parts) // 2] if manifest.parts else None
    name = part.first if part else manifest.units[0].unit
    known = Known(f"{where}/store", manifest.run, manifest.digest)
    return {"units": len(known.manifest.units_of(name.partition("-")[0]))}


def requests_of_processes(where: Path, _: int) -> dict[str, float]:
    """The most requests a second for one object, by 200 processes that each finish a unit every ten
    seconds.
    """
    from sentence_beam.transforms.storage.local import LocalStorage
    from sentence_beam.transforms.store.manifest import read_manifest
    from sentence_beam.transforms.store.runs import lease
    from sentence_beam.transforms.store.runs.reuse import Known

    root, seen, now = f"{where}/store", Counter(), [1_000_000.0]
    manifest = read_manifest(root)
    time.time = time.monotonic = lambda: now[0]
    lease.acquire(root, lease.Lease.of_this_process(manifest.run, "FlinkRunner", "job", False))
    for name in ("read_versioned", "replace_if", "put_if_absent", "stat"):
        call = getattr(LocalStorage, name)

        def counted(self: Any, path: str, *rest: Any, name: str = name, call: Any = call) -> Any:
            seen[name in ("replace_if", "put_if_absent"), os.path.relpath(path, root)] += 1
            return call(self, path, *rest)

        setattr(LocalStorage, name, counted)
    processes = [
        (lease.Looks(root, manifest.run), Known(root, manifest.run)) for _ in range(PROCESSES)
    ]
    for _, known in processes:
        _ = known.manifest
    for second in range(HOUR):
        now[0] += 1
        for looks, _ in processes[second % 10 :: 10]:
            looks.look_if_due()
    most, writes = (
        {path: n for (writes, path), n in seen.items() if writes == kind} for kind in (False, True)
    )
    return {
        "reads": max(most.values()) / HOUR,
        "writes": max(writes.values()) / HOUR,
        "objects": len(most),
    }


def measured(
    work: Callable[[Path, int], dict[str, float]], where: Path, unit_tokens: int
) -> dict[str, float]:
    """Seconds, peak memory in MB, and what the step says, in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(work, where, unit_tokens, sender)
    )
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def _run(
    work: Callable[[Path, int], dict[str, float]], where: Path, unit_tokens: int, sender: Any
) -> None:
    from sentence_beam.pipelines.common import command

    command.quiet_logs()
    start, before = time.perf_counter(), time.process_time()
    found = work(where, unit_tokens)
    took, cpu = time.perf_counter() - start, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sender.send({**found, "seconds": cpu, "took": took, "peak": peak})


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--files", type=int, default=20_000)
    p.add_argument("--groups", type=int, default=5, help="row groups a file, a unit each")
    p.add_argument("--rows", type=int, default=10_000, help="rows a row group")
    p.add_argument("--units", type=int, help="units of 1,000 rows, ten to a file")
    p.add_argument("--small", action="store_true", help="text files of one line, which share units")
    p.add_argument(
        "--no-pipeline", dest="pipeline", action="store_false", help="plan step by step alone"
    )
    p.add_argument("--counted", action="store_true", help="run samples of --units, count the rest")
    p.add_argument("--elements", type=int, default=4, help="with --counted: that are planned")
    p.add_argument("--folder", help="where to work (default: a temporary folder)")
    p.add_argument("--output")
    args = p.parse_args()
    if args.units:
        args.files, args.groups, args.rows = -(-args.units // 10), 10, 1000
    where = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        if args.counted:
            from benchmarks.scale_counted import counted

            print("\n".join(counted(where, args)))
            return
        found = steps(where, args)
    finally:
        shutil.rmtree(where)
    rows = [
        (
            name,
            f"{step['seconds']:.1f} s of work, {step['took']:.1f} s, {step['peak']:,.0f} MB",
            f"bars {BARS['seconds']}, {BARS['memory']}",
        )
        for name, step in found.items()
    ]
    asked = found["requests of 200 processes"]
    rows.append(
        (
            "requests a second for one object",
            f"{asked['reads']:.2f} reads, {asked['writes']:.3f} writes",
            "bar 1",
        )
    )
    kind = (
        "files of one line"
        if args.small
        else f"files, {args.files * args.groups * args.rows:,} rows"
    )
    title = f"{args.files:,} {kind}, {found['first night, commit']['units']:,} units"
    report(title, rows, args.output, {"steps": found})
    print("\n".join(who_does_what(found)))
    print(
        json.dumps(
            {name: step.get("graph bytes") for name, step in found.items() if "graph bytes" in step}
        )
    )


def who_does_what(found: dict[str, dict[str, float]]) -> list[str]:
    """A table of the steps of two nights: who does them, and how far one process goes."""
    units = found["first night, commit"]["units"]
    imported = found["imports"]["peak"]
    lines = ["| step | done by | seconds a million units | up to |", "|---|---|---|---|"]
    for name, step in found.items():
        who = DONE_BY.get(name.partition(", ")[2])
        if who is None:
            continue
        seconds = step["seconds"]
        if "commit alone" in step:
            seconds = step["settle"]
            lines.append(_row(f"{name}: the last step", ONE, step["commit alone"], 0.0, units))
            name = f"{name}: settle"
        memory = step["peak"] - imported
        lines.append(_row(name, who, seconds, memory, units))
    return lines


def _row(name: str, who: str, seconds: float, memory: float, units: float) -> str:
    up_to = "any size"
    if who == ONE:
        shares = [seconds / MOST_SECONDS, memory / MOST_MEMORY]
        up_to = f"{units / max(*shares, 1e-9) / 1e6:,.1f} M units"
    return f"| {name} | {who} | {seconds / units * 1e6:,.1f} | {up_to} |"


def nothing(where: Path, _: int) -> dict[str, float]:
    """Import what the other steps import."""
    resolved(where, 1)
    return {}


def steps(where: Path, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Two nights, the second with nothing changed, what readers and workers load, and what 200
    processes ask for.
    """
    if args.small:
        write_small(where / "in", args.files)
    else:
        write_inputs(where / "in", args.files, args.groups, args.rows)
    # a row group is larger than that, so that each is a unit
    unit_tokens = SMALL_UNITS if args.small else args.rows
    works = {
        "imports": nothing,
        "first night, listing": list_night,
        "first night, looking at files": look_night,
        "first night, the plan put together": record_night,
        **({"first night, plan as a pipeline in process": plan_night} if args.pipeline else {}),
        "first night, commit": commit_night,
        "second night, listing": list_night,
        "second night, looking at files": look_night,
        "second night, the plan put together": record_night,
        "second night, carried units read and packed": carry_night,
        **({"second night, plan as a pipeline in process": plan_night} if args.pipeline else {}),
        "second night, commit": commit_night,
        "manifest for search": open_for_search,
        "manifest with all units": open_all_units,
        "a worker's first unit": first_unit,
        "requests of 200 processes": requests_of_processes,
    }
    found = {}
    for name, work in works.items():
        found[name] = measured(work, where, unit_tokens)
        print(name, found[name], file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
