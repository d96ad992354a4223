"""Faults of the tables of a snapshot: of their parts, and of the counts in them."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.columns import as_numbers, get_column, get_numbers
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.store.counts import PendingCounts
from sentence_beam.transforms.store.ledger import Ledger, check_apart
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import KEPT_COUNTS
from sentence_beam.transforms.store.runs.recorded_plan import count_pending
from sentence_beam.transforms.store.runs.run_sums import Sums
from sentence_beam.transforms.store.tables.file_rows import count_units
from sentence_beam.transforms.store.tables.names import Owners
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, KEYS, PENDING
from sentence_beam.transforms.store.tables.table_parts import SCHEMAS, read_in_turns, read_part

_COUNTED = ("unit", *KEPT_COUNTS, "documents", "pieces_sum", "documents_sum", "path", "form")


def find_part_faults(manifest: Manifest, kind: str, number: int) -> Iterator[str]:
    """Yield a line for each fault of a part of `files` or `units`, by its number.

    Raises SentenceBeamError if it is missing or changed.
    """
    part = (manifest.files if kind == "files" else manifest.units).parts[number]
    path = storage.join(manifest.root, part.path)
    keys = get_column(read_part(manifest.root, part, SCHEMAS[kind].names), KEYS[kind])
    if len(keys) != part.rows:
        yield f"{path}: {len(keys)} rows, the manifest says {part.rows}"
    if not len(keys):
        return
    ends = (keys[0].as_py(), keys[-1].as_py())
    for name, value, recorded in zip(("first", "last"), ends, (part.first, part.last), strict=True):
        if value != recorded:
            yield f"{path}: the {name} {KEYS[kind]} is {value!r}, the manifest says {recorded!r}"
    wrong = np.flatnonzero(~as_numbers(pc.less(keys[:-1], keys[1:])))
    for place in wrong.tolist():
        yield f"{path}: {_describe_order(KEYS[kind], keys[place].as_py(), keys[place + 1].as_py())}"


def _describe_order(key: str, before: str, after: str) -> str:
    if before == after:
        return f"{key} {after!r} is listed twice"
    return f"{key} {after!r} is listed after {before!r}, out of order"


def find_table_faults(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each fault of what the manifest says about its parts.

    Parts are out of order, have a key twice, or do not add up to the rows.
    """
    for kind, table in (("files", manifest.files), ("units", manifest.units)):
        for before, after in pairwise(table.parts):
            if before.last.encode() >= after.first.encode():
                path = storage.join(manifest.root, after.path)
                yield f"{path}: {_describe_order(KEYS[kind], before.last, after.first)}"
        rows = sum(part.rows for part in table.parts)
        if rows != table.rows:
            yield f"{kind}: {rows} rows in all parts, the manifest says {table.rows}"


def find_count_faults(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each count of the manifest and of its files that is not its units' sum.

    Raises SentenceBeamError for a part that is missing or changed.
    """
    files = manifest.read_files("path", "group", *FILE_COUNTS, *PENDING)
    pending = count_pending(files)
    if pending != manifest.pending:
        there = _tell(pending)
        yield f"files: {there} in the list of files, the manifest says {_tell(manifest.pending)}"
    owners = Owners(files.column("path"), files.column("group"))
    counted = {name: np.zeros(len(files), np.int64) for name in FILE_COUNTS}
    sums = Sums(manifest.run)
    for _, units in read_in_turns(manifest.root, manifest.units, _COUNTED):
        sums.add_units(units)
        for name, counts in count_units(owners, len(files), units).items():
            counted[name] += counts
        if manifest.partition == "file":
            names = get_column(units, "unit")
            for place in np.flatnonzero(owners.of(names) < 0).tolist():
                yield f"ledger: unit {names[place]} is of no input file"
    yield from _compare_ledger(manifest, sums)
    for name, counts in counted.items():
        recorded = get_numbers(files, name)
        for place in np.flatnonzero(recorded != counts).tolist():
            yield (
                f"ledger: {files.column('path')[place]}: the sum of {name} over its units is"
                f" {counts[place]}, the list of files says {recorded[place]}"
            )


def _tell(pending: PendingCounts) -> str:
    return f"{pending.files} pending ({pending.bytes} bytes, {pending.tokens} tokens)"


def _compare_ledger(manifest: Manifest, sums: Sums) -> Iterator[str]:
    """Yield a line for each count of the manifest that its units do not add up to."""
    counted = sums.tally().ledger
    for name in ("read", "written", "rejected", "pieces"):
        recorded = getattr(manifest.rows, name)
        if getattr(counted, name) != recorded:
            yield (
                f"ledger: units have {getattr(counted, name)} rows {name}, the manifest says"
                f" {recorded}"
            )
    kept = {name: value for name, value in asdict(manifest.rows).items() if value is not None}
    work = asdict(manifest.work)
    try:
        Ledger({**kept, "carried": work.pop("carried")}, work).check()
        check_apart(int(sums.pieces_apart[0]))
    except LedgerError as error:
        yield error.line.removesuffix("; nothing committed")
