"""The record of how a run ended (`runs/<run>/result.json`, written once), times and versions."""

import functools
import json
from collections import deque
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Annotated, Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import (
    SentenceBeamError,
    name_flags,
    printable,
    refuse_damage,
)
from sentence_beam.transforms.base.json_entries import count, read_dataclass, record
from sentence_beam.transforms.base.measures import Measures
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.counts import PendingCounts
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.ledger import Ledger
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.sealed_json import check_digest, sealed, to_bytes

COMMITTED = "committed"
RESULTS_HERE = 16
PACKAGES = (
    "sentence-beam",
    "apache-beam",
    "torch",
    "transformers",
    "tokenizers",
    "pyarrow",
    "faiss-cpu",
    "faiss-gpu",
)


# how runs ended in this process, by store
HERE: "deque[tuple[str, Result]]" = deque(maxlen=RESULTS_HERE)


def _read_ledger(value: Any, where: str) -> dict[str, int]:
    """Return counts by name; `pieces` is null if rows are not cut."""
    counts = record(value, where)
    for name, number in counts.items():
        if number is not None:
            count(number, f"{where}.{name}")
    return counts


@dataclass(frozen=True)
class Result:
    """The end of a run: `status` is "committed" or "failed", `message` one line.

    Rows: `ledger` has the counts. `changes` are rows added, changed and deleted since the last
    snapshot (None: not known), `duplicate_ids` rows whose id an earlier row has (None: not known),
    `truncated` rows of this snapshot that were cut off, carried ones included. `own_rows` are the
    rows of units that this run made.

    Work: `tokens` went through the model in this run; those in the ledger may include the work of
    an interrupted run. `spared` are tokens of rows that already had vectors. `made` counts the
    units to make, `resumed` those that unfinished runs had made, by run. `measures` are the figures
    of its stages (`measures.STAGES`), `limit` names the part of Embed that held up the others.
    `devices` are the names of those that computed vectors.

    Shards: `damaged` are shards of the last snapshot that were missing or changed, so that their
    rows were embedded again. `checked` counts the carried shards that were checked, compared and
    read, the bytes read, and the damaged ones.

    Answers: `watch` has the figures of the watched queries (`answers.AnswerFigures`), None without
    any or if nothing was compared.

    Input: the number of files, of `empty` ones among them, and of files `beside` them by the reason
    why they were not taken (None: not known), the versions of `tables`, and the number of files
    that were `lacking` a kept column, by its name.

    Vectors: `pooled` is the id of the pooled vectors' space. `moved` compares the rows that were
    made with those of the calibration's fit (`calibration.moved.Moved`).

    Budget: `pending` counts the files that are left to later runs (None: not known). `budget` has
    the `tokens` of a run that has one, the `expected` ones of what it took, and the `runs` that the
    rest takes.

    `command` is the command of the run; "" if not known.
    """

    run: str
    status: str
    exit_code: int
    message: str
    finished: str
    seconds: float
    ledger: Annotated[dict[str, int], _read_ledger] = field(default_factory=dict)
    index: IndexEntry | None = None
    duplicate_ids: int | None = 0
    damaged: list[str] = field(default_factory=list)
    started: str = ""
    previous: str | None = None
    space: str = ""
    changes: dict[str, int] | None = None
    truncated: int = 0
    spared: int = 0
    tokens: int = 0
    pooled: str = ""
    checked: dict[str, int] | None = None
    measures: Measures | None = None
    limit: str = ""
    input: dict[str, Any] | None = None
    resumed: dict[str, int] = field(default_factory=dict)
    made: int = 0
    own_rows: int = 0
    moved: dict[str, float] | None = None
    command: str = ""
    devices: list[str] = field(default_factory=list)
    watch: dict[str, Any] | None = None
    pending: PendingCounts | None = None
    budget: dict[str, int] | None = None


def record_result(root: str, result: Result) -> None:
    """Write the record of how a run ended; a repeated last step keeps the first record."""
    remember_result(root, result)
    path = storage.join(root, layout.result(result.run))
    index = result.index.to_json() if result.index else None
    message = printable(name_flags(result.message))
    storage.storage_of(path).put_if_absent(
        path, to_bytes(sealed(asdict(result) | {"index": index, "message": message}))
    )


def remember_result(root: str, result: Result) -> None:
    """Keep the result of a run in this process, since a full disk may keep none."""
    HERE.append((root, result))


def find_result_here(root: str, run: str) -> Result | None:
    """Return the result of a run whose last step ran in this process, recorded or not."""
    return next(
        (result for place, result in reversed(HERE) if (place, result.run) == (root, run)), None
    )


def make_snapshot_result(manifest: Manifest, note: str) -> Result:
    """Return the result of a snapshot's run, as far as its manifest tells.

    Its message ends with `note`.
    """
    tokens = manifest.tokens
    counts = {**manifest.rows.to_json(), **manifest.work.to_json(), **tokens.to_json()}
    ledger = Ledger().to_json() | counts  # the other counts are not known
    return Result(
        run=manifest.run,
        status=COMMITTED,
        exit_code=0,
        message=f"{COMMITTED}; {note}",
        finished=manifest.finished,
        seconds=round(parse_timestamp(manifest.finished) - parse_timestamp(manifest.started), 3),
        ledger=ledger,
        index=manifest.index,
        duplicate_ids=None,
        started=manifest.started,
        previous=manifest.previous,
        space=manifest.space.id,
        tokens=tokens.real,
        pooled=manifest.space.pooled_id,
        pending=manifest.pending,
    )


def read_result(root: str, run: str) -> Result | None:
    """Return how a run ended; None if it has not, or the record is damaged."""
    try:
        return read_checked_result(root, run)
    except SentenceBeamError:
        return None


def read_checked_result(root: str, run: str) -> Result | None:
    """Return how a run ended; None if it has not.

    Raises SentenceBeamError if the record is damaged.
    """
    path = storage.join(root, layout.result(run))
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return None
    with refuse_damage(
        f"{path} is not the result of a run", "remove it: nothing but the run's counts is lost"
    ):
        content = json.loads(stored[0])
        result: Result = read_dataclass(Result, content)
        check_digest(content)
        return result


def has_committed(root: str, run: str) -> bool:
    """Return whether a run has a record that it committed a snapshot."""
    result = read_result(root, run) if run else None
    return result is not None and result.status == COMMITTED


def now() -> str:
    """Return the present time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(time: str) -> float:
    """Return seconds since 1970 of a time that `now` wrote.

    >>> parse_timestamp("1970-01-02T00:00:00.500Z")
    86400.5
    """
    return datetime.fromisoformat(time).timestamp()


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that decide vectors and files, by name."""
    return dict(_find_versions())


@functools.cache
def _find_versions() -> dict[str, str]:
    versions_installed = {}
    for package in PACKAGES:
        try:
            versions_installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions_installed
