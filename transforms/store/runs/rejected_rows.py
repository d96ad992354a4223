"""The rejected rows of a run: counts by reason, and the list of their files.

The list is written if too many rejected rows ended the run.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, NoReturn

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.corpus import Rejected
from sentence_beam.transforms.corpus.column_types import (
    NOT_OF_TYPE,
    STR,
    WIDER,
    KeptColumn,
    find_word,
)
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.corpus.row_blocks import BLANK_LINE, NULL_TEXT
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import stored
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.open import find_named_run
from sentence_beam.transforms.store.runs.recorded_plan import RecordedPlan
from sentence_beam.transforms.store.runs.run_ids import list_runs
from sentence_beam.transforms.store.sealed_json import to_bytes
from sentence_beam.transforms.store.shards.reject_files import parse_rejects

FILES_AT_ONCE = 16


@dataclass(frozen=True)
class _Listed:
    """The content of the list of a run."""

    rejects: tuple[Annotated[str, stored("rejects")], ...]


def read_rejected_rows(root: str, paths: Iterable[str]) -> Iterator[Rejected]:
    """Yield the rows of reject files, given relative to the store.

    Raises SentenceBeamError for a file that is missing.
    """
    with ThreadPoolExecutor(FILES_AT_ONCE) as executor:
        for rows in executor.map(lambda path: _read_rows(root, path), paths):
            yield from rows


def _read_rows(root: str, path: str) -> list[Rejected]:
    try:
        return parse_rejects(storage.read_bytes(storage.join(root, path)))
    except (FileNotFoundError, SentenceBeamError) as error:
        raise SentenceBeamError(
            f"{root}: the reject file {path} is missing or damaged; see verify"
        ) from error


def record_rejected(root: str, run: str, paths: list[str]) -> None:
    """Write the list of the reject files of a run that does not commit."""
    path = storage.join(root, layout.reject_list(run))
    storage.storage_of(path).put_if_absent(path, to_bytes({"rejects": paths}))


def count_reasons(root: str, paths: list[str], plan: RecordedPlan) -> str:
    """Return the counts of rejected rows by reason, most frequent first, as the gate counts them.

    For null texts of JSON and JSONL, the existing keys follow, as in `5 null text (keys there: id,
    body)`.
    """
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    try:
        for row in read_rejected_rows(root, paths):
            if row.reason != BLANK_LINE:
                counts[row.reason] += 1
                example.setdefault(row.reason, row.file)
    except SentenceBeamError as error:
        return f"reasons unknown, {error.message}"
    parts = []
    for reason, count in counts.most_common():
        part = f"{count:,} {reason}{find_mend(reason)}"
        if reason == NULL_TEXT:
            part += _describe_keys(plan, example[NULL_TEXT])
        parts.append(part)
    return ", ".join(parts)


def find_mend(reason: str) -> str:
    """Return the types that take values which a kept column's type does not, in brackets.

    Returns "" for other reasons.
    """
    match = NOT_OF_TYPE.fullmatch(reason)
    if match is None:
        return ""
    column = KeptColumn(match["name"], STR.word)
    wider = WIDER.get(find_word(match["word"]))
    mend = f"{cite('keep_columns')} {column} takes all values"
    if wider is not None:
        mend = (
            f"{cite('keep_columns')} {column._replace(kind=wider)} takes more, {column} all values"
        )
    return f" ({mend}; other rows keep their vectors)"


def _describe_keys(plan: RecordedPlan, relative: str) -> str:
    """Return the keys of the first rows of an input file in brackets.

    Returns "" for other formats, or if the file cannot be read.
    """
    file = plan.file(relative)
    if file is None:
        return ""
    try:
        keys = open_columns(file).read_first_keys()
    except (SentenceBeamError, OSError):
        return ""
    return "" if keys is None else f" (keys there: {ascii(', '.join(keys))[1:-1]})"


def find_rejecting_run(root: str, run: str | None) -> tuple[str, list[str]]:
    """Return a run and its reject files.

    The run is `run`, as `find_named_run` takes it, else the last one that committed or that
    rejected rows ended. Raises OptionError if it does not exist.
    """
    current = read_manifest(root)
    runs = sorted(list_runs(root), reverse=True)
    if run is not None:
        return _find_rejects(root, find_named_run(root, run, runs), current)
    for name in runs:
        listed = _read_list(root, name)
        if listed is not None:
            return name, listed
        if current is not None and current.run == name:
            return name, list_reject_files(current)
    if current is not None:  # its folder below runs/ was removed
        return current.run, list_reject_files(current)
    _refuse_missing(root, "")


def _find_rejects(root: str, run: str, current: Manifest | None) -> tuple[str, list[str]]:
    """Return a run and its reject files, from its list or its snapshot."""
    listed = _read_list(root, run)
    if listed is not None:
        return run, listed
    if current is None or current.run != run:
        current = read_manifest(root, run)
    if current is None:
        _refuse_missing(root, f" of a run {run}")
    return run, list_reject_files(current)


def _refuse_missing(root: str, of_run: str) -> NoReturn:
    raise OptionError(
        f"{root} has no list of rejected rows{of_run}; check the path, or see history for the runs"
    )


def _read_list(root: str, run: str) -> list[str] | None:
    """Return the reject files in the list of a run, None without a list.

    Raises SentenceBeamError if the list is damaged.
    """
    path = storage.join(root, layout.reject_list(run))
    stored = storage.storage_of(root).read_versioned(path)
    if stored is None:
        return None
    with refuse_damage(f"{path} is not the list that was written", "run embed again"):
        return list(read_dataclass(_Listed, json.loads(stored[0])).rejects)


def list_reject_files(manifest: Manifest) -> list[str]:
    """Return the reject files of a snapshot."""
    rejects: list[str] = manifest.read_units("rejects").column(0).drop_null().to_pylist()
    return rejects
