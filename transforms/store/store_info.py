"""Facts about a store: its model, rows, columns and index, and how its last run ended."""

from dataclasses import asdict
from typing import Any

from sentence_beam.transforms.base.columns import sum_column
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest, snapshots
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.run_ids import find_last_run, parse_start
from sentence_beam.transforms.store.runs.run_result import (
    Result,
    make_snapshot_result,
    read_checked_result,
)
from sentence_beam.transforms.store.shards.shard_columns import list_own_columns
from sentence_beam.transforms.store.shards.shard_files import open_numbered

RUNNING = "running"
UNFINISHED = "unfinished"
NO_RESULT = "its result is missing"
ROWS = ("read", "written", "rejected")
WORK = ("embedded", "reused", "duplicates", "carried")
OF_A_RUN = (
    "run",
    "status",
    "command",
    "started",
    "finished",
    "seconds",
    "message",
    "changes",
    "duplicate_ids",
)


def collect_info(manifest: Manifest) -> dict[str, Any]:
    """Return facts about a snapshot and its store, as JSON values.

    `faults` name files that are missing or damaged. Reads the manifest, the footer of one shard and
    the result of the last run.
    """
    faults: list[str] = []
    segments = manifest.index.segments if manifest.index else ()
    return {
        "store": manifest.root,
        "snapshot": manifest.run,
        "snapshots": len(snapshots(manifest.root)),
        "format": manifest.format,
        "started": manifest.started,
        "finished": manifest.finished,
        "model": manifest.options.model,
        "space": manifest.space.to_json(),
        "rows": manifest.rows.to_json(),
        "pending": manifest.pending.to_json(),
        "columns": _describe_columns(manifest, faults),
        "files": manifest.files.rows,
        "shards": len(manifest.shards),
        "bytes": {
            "input": sum_column(manifest.read_files("size"), "size"),
            "shards": sum_column(manifest.shards, "bytes"),
            "index": sum(segment.bytes + segment.locator_bytes for segment in segments),
        },
        "input": list(manifest.input.globs),
        "tables": manifest.input.tables,
        "partition": manifest.partition,
        "unit_tokens": manifest.unit_tokens,
        "options": manifest.options.to_json(),
        "index": _describe_index(manifest.index),
        "last_run": _describe_last_run(manifest, faults),
        "versions": manifest.versions,
        "faults": faults,
    }


def _describe_columns(manifest: Manifest, faults: list[str]) -> list[dict[str, str]] | None:
    """Return name and type of every column of the first shard, kept columns marked.

    Returns None if there is no shard, or it cannot be read.
    """
    if not len(manifest.shards):
        return None
    try:
        with open_numbered(manifest, 0) as parquet:
            schema = parquet.schema_arrow
    except SentenceBeamError as error:
        faults.append(error.line)
        return None
    own = list_own_columns(schema.names)
    columns = []
    for field in schema:
        kind = "own" if field.name in own else "kept"
        columns.append({"name": field.name, "type": str(field.type), "kind": kind})
    return columns


def _describe_index(index: IndexEntry | None) -> dict[str, Any] | None:
    """Return the kind and recall of an index, without its files."""
    if index is None:
        return None
    names = (
        "factory",
        "metric",
        "rows",
        "nprobe",
        "rerank",
        "request",
        "recall",
        "recall_100",
        "recall_changed",
    )
    entry = index.to_json()
    return {"segments": len(index.segments), **{name: entry.get(name) for name in names}}


def _describe_last_run(manifest: Manifest, faults: list[str]) -> dict[str, Any]:
    """Return how the last run of the store ended, committed or not, and its counts of rows."""
    run = max(manifest.run, find_last_run(manifest.root) or "")
    try:
        result = read_checked_result(manifest.root, run)
    except SentenceBeamError as error:
        faults.append(error.line)
        result = None
    if result is None and run == manifest.run:
        result = make_snapshot_result(manifest, NO_RESULT)
    if result is None:
        status = RUNNING if lease.is_alive(manifest.root, run) else UNFINISHED
        return {"run": run, "status": status, "started": parse_start(run)}
    return _describe_ended(result)


def _describe_ended(result: Result) -> dict[str, Any]:
    fields = asdict(result)
    rows = {name: result.ledger[name] for name in ROWS if name in result.ledger}
    work = {name: result.ledger[name] for name in WORK if name in result.ledger}
    return {**{name: fields[name] for name in OF_A_RUN}, "rows": rows, "work": work}
