"""The lines of a summary about the files of the input."""

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.errors import SentenceBeamError, name_flags
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.collection_rows import describe_files
from sentence_beam.transforms.corpus.formats.registry import FORMATS, open_columns
from sentence_beam.transforms.corpus.found_columns import FoundColumns
from sentence_beam.transforms.report.snapshot_section import find_reasons
from sentence_beam.transforms.steps.options.resolve import Resolved
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files
from sentence_beam.transforms.store.runs.rejected_rows import find_mend
from sentence_beam.transforms.store.runs.run_result import Result

BAD_FILES = 10  # so many are named in the summary


REASONS = 5  # why files are not taken: so many are told apart in a line


def describe_input(input_counts: dict[str, Any] | None, pending: int) -> list[str]:
    """The lines about the files of a run's input, and those beside them that are not taken.

    `pending` files are left to later runs.
    """
    if input_counts is None:
        return []
    bad = input_counts.get("bad", {})
    empty = f", {input_counts['empty']:,} of them empty" if input_counts["empty"] else ""
    lines = [
        format_summary_line(
            "files", f"{input_counts['files'] - len(bad) - pending:,} taken{empty}"
        ),
        *describe_beside(input_counts["beside"]),
    ]
    lines += [
        format_summary_line("table", f"{name}, version {version}")
        for name, version in input_counts.get("tables", {}).items()
    ]
    return [*lines, *describe_lacking(input_counts.get("lacking", {})), *describe_bad(bad)]


def describe_columns(columns: FoundColumns) -> list[str]:
    """The line about the columns that were found, without an option that names them."""
    told = []
    if columns.text is not None:
        told.append(f"text {columns.text}")
    if columns.id is not None:
        told.append(f"ids from {columns.id}")
    elif columns.other_id is not None:
        name = columns.other_id
        told.append(f"ids from file and row ({name} would do: --id-column {shlex.quote(name)})")
    elif columns.has_ids:
        told.append("ids from file and row")
    if not told or told == ["text text"]:
        return []
    return [format_summary_line("columns", "; ".join(told))]


def describe_lacking(lacking: dict[str, int]) -> list[str]:
    """The line about files without a kept column, whose rows have nulls there; counts by name."""
    shown = [f"{name} in {format_count(files, 'file')}" for name, files in lacking.items()]
    return (
        [format_summary_line("columns", f"missing, null there: {', '.join(shown)}")]
        if shown
        else []
    )


def describe_bad(bad: dict[str, str]) -> list[str]:
    """The lines about files that are left out, whose reasons are given by relative path."""
    lines = [format_summary_line("bad file", reason) for reason in list(bad.values())[:BAD_FILES]]
    rest = len(bad) - BAD_FILES
    if rest > 0:
        return [
            *lines,
            format_summary_line("bad files", f"{rest:,} more; result.json of the run lists them"),
        ]
    return lines


def describe_syntax(files: Iterable[InputFile]) -> list[str]:
    """The lines about the syntax that the first CSV files were found to have.

    If there are several, each line names a file.
    """
    descriptions = describe_files(files)
    if len(descriptions) == 1:
        ((title, (kind, _)),) = descriptions.items()
        return [format_summary_line(kind, title)]
    return [
        format_summary_line(kind, f"{title} ({name})")
        for title, (kind, name) in descriptions.items()
    ]


def describe_headers(resolved: Resolved, result: Result) -> list[str]:
    """The lines about CSV files: their syntax, and in a new store blanks around column names."""
    if not result.own_rows:
        return []
    manifest = _read_committed(resolved.job.root, result.run)
    if manifest is None:
        return []
    syntax = resolved.job.syntax
    headed = [name for name, format in FORMATS.items() if format.has_header]
    files = manifest.read_files()
    files = files.filter(pc.is_in(files.column("format"), pa.array(headed)))
    named = list(list_input_files(files, syntax))
    lines = describe_syntax(named)
    if resolved.previous is None and named:
        names = ", ".join(f'"{name}"' for name in _read_trimmed_names(named[0]))
        if names:
            lines.append(format_summary_line("columns", f"blanks around names left out: {names}"))
    return lines


def _read_committed(root: str, run: str) -> Manifest | None:
    """Return the manifest of a run; None if it cannot be read now, which undoes no commit."""
    with contextlib.suppress(SentenceBeamError, OSError):
        return read_manifest(root, run)
    return None


def _read_trimmed_names(file: InputFile) -> Sequence[str]:
    """The names without blanks; none if the file is gone by now."""
    with contextlib.suppress(SentenceBeamError):
        return open_columns(file).trimmed_names
    return ()


def describe_types(root: str, result: Result) -> list[str]:
    """The lines about rows that are left out because of the type of a kept column."""
    if not result.ledger["rejected"]:
        return []
    reasons_known = None
    with contextlib.suppress(SentenceBeamError, OSError):
        reasons_known = find_reasons(_read_committed(root, result.run))
    if reasons_known is None:
        return []
    return [
        format_summary_line("types", f"{count:,} rejected: {reason}{name_flags(find_mend(reason))}")
        for reason, count in reasons_known.counts
        if find_mend(reason)
    ]


def describe_beside(beside: dict[str, int]) -> list[str]:
    """The line about files beside those of the input that are not taken, by reason, if any."""
    shown = [f"{count:,} {reason}" for reason, count in list(beside.items())[:REASONS]]
    rest = sum(list(beside.values())[REASONS:])
    if rest:
        shown += [f"{rest:,} others"]
    return [format_summary_line("beside", f"not taken: {', '.join(shown)}")] if shown else []
