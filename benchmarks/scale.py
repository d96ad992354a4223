"""A billion rows on paper: planning and committing 100,000 units over 20,000 files, without embedding them.

    python -m benchmarks.scale [--files 20000] [--groups 5] [--rows 10000] [--output FILE.json]

The files are real Parquet with real footers, of texts that compress to nothing. Records of made-up shards stand in for
the embedding; each shard is an empty file of the right size. Everything else is what `embed` runs: listing, footers,
plan, ledger, manifest, the comparison with the last snapshot. Every step runs in a process of its own, so that its peak
memory is its own; importing the packages is in it, starting the interpreter is not in the seconds.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import report

BARS = {"seconds": "60 s", "memory": "1,024 MB"}
TEXT = "forty characters stand here for one row."
DIM = 384


def write_inputs(folder: Path, files: int, groups: int, rows: int) -> None:
    """Files of `groups` row groups of `rows` rows each; every file differs from the others by one id."""
    folder.mkdir()
    texts = pa.array([TEXT] * (rows * groups))
    for number in range(files):
        ids = pa.array([f"{number}"] * (rows * groups))
        path = folder / f"{number:06d}.parquet"
        pq.write_table(pa.table({"id": ids, "text": texts}), path, row_group_size=rows)


def resolved(where: Path, unit_tokens: int) -> Any:
    """The job of a night, as `embed` resolves it."""
    from pipelines.embed_options import parser
    from transforms.steps.options import EmbedOptions
    from transforms.steps.resolve import resolve
    from transforms.store.manifest import read_manifest
    from transforms.store.run_ids import new_run

    argv = ["--input", f"{where}/in/*.parquet", "--store", f"{where}/store", "--unit-tokens", str(unit_tokens)]
    options = EmbedOptions(**vars(parser().parse_args(argv)))
    return resolve(options, read_manifest(f"{where}/store"), new_run(), local=True)


def made_up(spans: list[Any], root: str) -> Iterator[Any]:
    """The records that embedding the spans would leave, with shards that hold nothing."""
    from transforms.store import layout
    from transforms.store.records import UnitRecord

    for span in spans:
        path, size = layout.shard(span.name, "0" * 16), span.rows * (4 * DIM + 40)
        full = Path(root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.touch()
        os.truncate(full, size)
        yield UnitRecord(
            path=path, unit=span.name, file=span.file.relative, range=(span.start, span.stop), rows=span.rows,
            read=span.rows, rejected=0, rejects=None, tokens=span.tokens, truncated=0, lost=0, bytes=size,
            sha256="0" * 64, embedded=span.rows, real=span.tokens, padded=span.tokens,
        )  # fmt: skip


def plan_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Plan a night; what it found is kept for the commit."""
    from transforms.beam import Plan

    job = resolved(where, unit_tokens).job
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        planned = pipeline | beam.Create(list(job.run.globs)) | Plan(job)
        _ = planned.spans | beam.combiners.Count.Globally() | beam.Map(lambda n: None)
    graph = len(pipeline.to_runner_api().SerializeToString())
    (where / "run").write_text(job.run.id)
    return {"graph bytes": graph}


def commit_night(where: Path, unit_tokens: int) -> dict[str, float]:
    """Commit the planned night: the plan read back, the units' records, ledger, manifest, pointer."""
    from transforms.store.commit import finish
    from transforms.store.records import carried

    made = resolved(where, unit_tokens)
    run = replace(made.job.run, id=(where / "run").read_text())
    kept = {unit.unit: unit for unit in made.previous.units} if made.previous else {}
    units = [carried(unit) for unit in kept.values()] if kept else list(spans_again(where, made.job))
    start = time.monotonic()
    result = finish(run, settled_units(run, units))
    assert result.status == "committed", result.message
    return {"units": len(units), "finish alone": time.monotonic() - start}


def settled_units(run: Any, units: list[Any]) -> Any:
    """The units by stretches, packed, checked and summed, one stretch after the other."""
    from transforms.steps.settle import settled_or_problem
    from transforms.store.packed import pack
    from transforms.store.settled import Settler
    from transforms.store.stretches import STRETCHES, stretch_of

    packed: list[list[bytes]] = [[] for _ in range(STRETCHES)]
    for unit in units:
        packed[stretch_of(unit.unit)].append(pack(unit))
    settler = Settler(run.root, run.id)
    return settled_or_problem([settler.settle(number, found) for number, found in enumerate(packed)], run)


def spans_again(where: Path, job: Any) -> Iterator[Any]:
    """The first night's records, from the files' footers."""
    from transforms.corpus import match_inputs, plan_file

    for file in match_inputs(f"{where}/in/*.parquet"):
        yield from made_up(plan_file(file, "text", job.run.unit_tokens), job.root)


def open_for_search(where: Path, _: int) -> dict[str, float]:
    """What `search` and `history` read: the manifest without its units."""
    from transforms.store import open_store

    manifest = open_store(f"{where}/store").manifest
    return {"rows": manifest.data["rows"]["written"], "space": len(manifest.space.id)}


def open_all_units(where: Path, _: int) -> dict[str, float]:
    """What `files` and `verify` read: every unit's record."""
    from transforms.store import open_store

    return {"units": len(open_store(f"{where}/store").manifest.shard_paths)}


def measured(work: Callable[[Path, int], dict[str, float]], where: Path, unit_tokens: int) -> dict[str, float]:
    """Seconds, peak memory in MB, and what the step says, in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(work, where, unit_tokens, sender))
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def _run(work: Callable[[Path, int], dict[str, float]], where: Path, unit_tokens: int, sender: Any) -> None:
    from pipelines import command

    command.quiet_logs()
    start = time.monotonic()
    found = work(where, unit_tokens)
    took = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sender.send({**found, "seconds": took, "peak": peak})


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON too."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--files", type=int, default=20_000)
    p.add_argument("--groups", type=int, default=5, help="row groups a file, a unit each")
    p.add_argument("--rows", type=int, default=10_000, help="rows a row group")
    p.add_argument("--folder", help="where to work (default: a temporary folder)")
    p.add_argument("--output")
    args = p.parse_args()
    where = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        found = steps(where, args.files, args.groups, args.rows)
    finally:
        shutil.rmtree(where)
    rows = [
        (name, f"{step['seconds']:.1f} s, {step['peak']:,.0f} MB", f"bars {BARS['seconds']}, {BARS['memory']}")
        for name, step in found.items()
    ]
    title = f"{args.files:,} files, {args.files * args.groups:,} units, {args.files * args.groups * args.rows:,} rows"
    report(title, rows, args.output, {"steps": found})
    print(json.dumps({name: step.get("graph bytes") for name, step in found.items() if "graph bytes" in step}))


def steps(where: Path, files: int, groups: int, rows: int) -> dict[str, dict[str, float]]:
    """Two nights, the second with nothing changed, and what readers load."""
    write_inputs(where / "in", files, groups, rows)
    unit_tokens = rows  # a row group is larger than that, so that each is a unit
    return {
        "first night, plan": measured(plan_night, where, unit_tokens),
        "first night, commit": measured(commit_night, where, unit_tokens),
        "second night, plan": measured(plan_night, where, unit_tokens),
        "second night, commit": measured(commit_night, where, unit_tokens),
        "manifest for search": measured(open_for_search, where, unit_tokens),
        "manifest with all units": measured(open_all_units, where, unit_tokens),
    }


if __name__ == "__main__":
    main()
