"""`sentence-beam info`: what a store is, and how its last run ended."""

import argparse
import shlex
import sys
from typing import Any

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.tables import wrapped
from sentence_beam.transforms.base.numbers import format_amount, format_count
from sentence_beam.transforms.base.progress import format_duration
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.corpus.arrow_types import NO_TYPE
from sentence_beam.transforms.report.snapshot_section import list_facts
from sentence_beam.transforms.steps.options.store import InfoOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.run_result import COMMITTED

DIGITS = 16  # of a space's id
OF_THE_INPUT = ("input", "pending", "index")
OF_THE_MODEL = (
    "model",
    "revision",
    "pooler",
    "prompt",
    "query_prompt",
    "own_prompts",
    "max_tokens",
    "chunks",
    "precision",
    "normalize",
    "keep_types",
)


def parser() -> argparse.ArgumentParser:
    """The options of `info`."""
    return options.command(
        "info",
        "Show what a store is: model, space, rows, columns, bytes, options, index and last run.",
        "sentence-beam info --store store",
        "sentence-beam info --store gs://bucket/store --json",
        kind=InfoOptions,
    )


def _run_info(options: InfoOptions) -> CommandOutput:
    store = open_store(options.store, options.snapshot)
    info_of_store = store.info()
    return CommandOutput(
        wrapped(describe_store(info_of_store, store.manifest)), info_of_store, always=True
    )


def describe_store(info: dict[str, Any], manifest: Manifest) -> list[str]:
    """The facts about a store, a line each."""
    told = [("store", info["store"]), ("snapshot", _describe_snapshot(info))]
    told += [(name, value) for name, value in list_facts(manifest) if name not in OF_THE_INPUT]
    told += [
        ("space", f"{info['space']['id'][:DIGITS]}, pooled {info['space']['pooled_id'][:DIGITS]}"),
        (
            "rows" if info["rows"].get("pieces") is None else "documents",
            describe_rows(info["rows"]),
        ),
        ("columns", describe_columns(info["columns"])),
        ("options", describe_options(info["options"], info["partition"])),
        ("bytes", _describe_bytes(info)),
    ]
    told += [(name, value) for name, value in list_facts(manifest) if name in OF_THE_INPUT]
    told.append(("last run", _describe_last_run(info["last_run"])))
    told += [("damaged", fault) for fault in info["faults"]]
    return [format_summary_line(name, value) for name, value in told if value]


def _describe_snapshot(info: dict[str, Any]) -> str:
    kept = format_count(info["snapshots"], "snapshot")
    return (
        f"{info['snapshot']} of {_shorten(info['finished'])}; {kept} kept, format {info['format']}"
    )


def _shorten(time: str) -> str:
    return time[:16].replace("T", " ")


def describe_rows(rows: dict[str, int]) -> str:
    """The rows of a store, or its documents with their pieces."""
    pieces = rows.get("pieces")
    cut = "" if pieces is None else f" in {format_count(pieces, 'piece')}"
    lost = f", {rows['rejected']:,} of {rows['read']:,} read rejected" if rows["rejected"] else ""
    return f"{rows['written']:,}{cut}{lost}"


def describe_columns(columns: list[dict[str, str]] | None) -> str:
    """The columns of a shard: those that were kept with their types, then the names of the
    others.
    """
    if columns is None:
        return "unknown, no shard is there to tell"
    kept = [
        f"{column['name']} ({column['type']})" for column in columns if column["kind"] == "kept"
    ]
    own = [column["name"] for column in columns if column["kind"] == "own"]
    return "; ".join(part for part in (", ".join(kept), ", ".join(own)) if part)


def describe_options(remembered: dict[str, Any], partition: str) -> str:
    """The remembered options that differ from the defaults, as flags; those of the model have lines
    of their own.
    """
    defaults = RememberedOptions().to_json()
    types = remembered.get("keep_types", {})
    flags = [] if partition == "file" else [f"--partition {partition}"]
    for name, value in remembered.items():
        if name == "keep_columns":
            typed = {column: word for column, word in types.items() if word != NO_TYPE}
            value = [f"{column}:{typed[column]}" if column in typed else column for column in value]
        if name not in OF_THE_MODEL and value != defaults.get(name):
            flags += _as_flag(name, value)
    return " ".join(flags) or "defaults"


def _as_flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if not value and value is not False:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, list | tuple):
        return [flag, shlex.quote(",".join(map(str, value)))]
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return [flag, shlex.quote(text)]


def _describe_bytes(info: dict[str, Any]) -> str:
    sizes = info["bytes"]
    told = f"{format_amount(sizes['shards'])} in {format_count(info['shards'], 'shard')}"
    if info["index"] is not None:
        told += f", {format_amount(sizes['index'])} of index"
    return f"{told}; from {format_amount(sizes['input'])} in {format_count(info['files'], 'file')}"


def _describe_last_run(run: dict[str, Any]) -> str:
    told = [
        f"{run['run']}: {run.get('command') or 'run'} {run['status']}, begun"
        f" {_shorten(run['started'])}"
    ]
    if "seconds" in run:
        told[0] += f", took {format_duration(run['seconds'])}"
    changes = run.get("changes") or {}
    if changes:
        told.append(
            ", ".join(f"{changes[name]:,} {name}" for name in ("added", "changed", "deleted"))
        )
    message = run.get("message", COMMITTED)
    if message != COMMITTED:
        told.append(message)
    return "; ".join(told)


info = function("info", InfoOptions, _run_info)
main = command.main(parser, _run_info, kind=InfoOptions)

if __name__ == "__main__":
    sys.exit(main())
