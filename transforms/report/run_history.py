"""The history of a store: every run, how it ended, and what it cost."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.base.measures import Measures
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.counts import PendingCounts
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.run_ids import parse_start
from sentence_beam.transforms.store.runs.run_result import (
    COMMITTED,
    Result,
    parse_timestamp,
    read_checked_result,
)
from sentence_beam.transforms.store.sealed_json import check_digest

UNFINISHED = "unfinished"
FROM_RESULT = ("run", "status", "seconds", "previous", "space", "pooled", "command", "moved")
FROM_LEDGER = ("read", "rejected", "embedded", "reused", "duplicates", "carried")
RUNS_SEEN = 7  # runs from whose answers a gate is recommended
ROOM = 0.02  # share of changed answers that a recommended gate allows beside those seen
REASONS = 10  # reasons for left out files that a message lists


@dataclass(frozen=True)
class RunSummary:
    """A run of a store; unknown values are None.

    `status` is "committed", "failed", "running", or "unfinished" if the run left no result.
    `command` is "embed", "index", "recalibrate", "rollback" or "watch"; "" for a run of an earlier
    version.

    Rows: `rows` are those of the run's snapshot, `rejected` and `truncated` rows too; `blank` are
    the rejected rows that are blank lines of text files, `forgotten` those that were erased.
    `embedded`, `reused`, `duplicates` and
    `carried` are the rows by the origin of their vectors. `added`, `changed` and `deleted` compare
    with the previous snapshot. If rows are documents, `pieces` counts the pieces they were cut
    into, and the counts of vectors, truncation and changes are of pieces.

    Work: `tokens` went through the model, including those of an interrupted run before this one;
    `tokens_per_second` covers this run alone. `spared` are the tokens of rows that already had
    vectors. `damaged` are old shards that could not be reused or carried over, `checked` are
    carried shards whose bytes or checksum were compared. `measures` are the figures of the stages,
    and `limit` is the part of Embed that held up the others. `moved` is as in Result, `tables` has
    the versions of the input's tables.

    Answers to watched queries: `answer_change` is the share of lost answers, `answers_beyond` the
    share beyond growth, `answer_overlap` the mean overlap with the snapshot before, `answer_causes`
    counts the lost ones by cause.

    `pending` counts the files that are left to later runs.
    """

    run: str
    status: str
    started: str
    seconds: float | None = None
    message: str = ""
    previous: str | None = None
    space: str = ""
    pooled: str = ""
    rows: int | None = None
    pieces: int | None = None
    read: int | None = None
    rejected: int | None = None
    blank: int | None = None
    forgotten: int | None = None
    embedded: int | None = None
    reused: int | None = None
    duplicates: int | None = None
    carried: int | None = None
    added: int | None = None
    changed: int | None = None
    deleted: int | None = None
    duplicate_ids: int | None = None
    damaged: int | None = None
    checked: int | None = None
    truncated: int | None = None
    tokens: int | None = None
    spared: int | None = None
    tokens_per_second: float | None = None
    index: str | None = None
    recall: float | None = None
    command: str = ""
    moved: dict[str, float] | None = None
    limit: str | None = None
    measures: Measures | None = None
    tables: dict[str, str] | None = None
    answer_change: float | None = None
    answers_beyond: float | None = None
    answer_overlap: float | None = None
    answer_causes: dict[str, int] | None = None
    pending: PendingCounts | None = None

    @property
    def stored(self) -> int | None:
        """The rows of all shards: those of the input, or the pieces of its documents."""
        if self.pieces is None:
            return self.rows
        return self.pieces

    @classmethod
    def from_result(cls, result: Result) -> "RunSummary":
        """Return the summary of a run that recorded how it ended."""
        inputs = result.input or {}
        summary = cls(
            **{name: getattr(result, name) for name in FROM_RESULT},
            started=result.started or parse_start(result.run),
            message=_message(result),
            tables=inputs.get("tables"),
            pending=result.pending,
            **_answers(result.watch),
        )
        if not result.ledger:
            return summary
        return replace(summary, **_counts(result))

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "RunSummary":
        """Return the summary of a run that has a snapshot but no result."""
        return cls(
            run=manifest.run,
            status=COMMITTED,
            started=manifest.started,
            seconds=round(
                parse_timestamp(manifest.finished) - parse_timestamp(manifest.started), 3
            ),
            previous=manifest.previous,
            space=manifest.space.id,
            pooled=manifest.space.pooled_id,
            rows=manifest.rows.written,
            pieces=manifest.rows.pieces,
            read=manifest.rows.read,
            rejected=manifest.rows.rejected,
            tokens=manifest.tokens.real,
            tables=manifest.input.tables or None,
            pending=manifest.pending,
            **manifest.work.to_json(),
            **_index(manifest.index),
        )


def select_committed(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the runs that committed a snapshot, in the order given."""
    return [summary for summary in summaries if summary.status == COMMITTED]


def find_last_committed(summaries: Iterable[RunSummary]) -> RunSummary | None:
    """Return the last run that committed a snapshot, None without one."""
    committed = select_committed(summaries)
    return committed[-1] if committed else None


def recommend_answer_change(summaries: Sequence[RunSummary]) -> float | None:
    """Return a value for `--max-answer-change`, from the last runs of `embed`; None before seven.

    It is twice the largest change beyond growth that they showed, and 0.02 more.
    """
    seen = [
        summary.answers_beyond
        for summary in select_committed(summaries)
        if summary.command == "embed" and summary.answers_beyond is not None
    ]
    if len(seen) < RUNS_SEEN:
        return None
    largest = max(seen[-RUNS_SEEN:])
    return min(1.0, math.ceil(100 * (2 * largest + ROOM)) / 100)


def read_summaries(root: str, earlier: Iterable[RunSummary] = ()) -> list[RunSummary]:
    """Return every run of a store, oldest first.

    Results of `earlier` runs, which have ended, are not read again.
    """
    begun, ended = _list_recorded(root)
    summaries = {summary.run: summary for summary in earlier if summary.run in ended}
    damage: dict[str, str] = {}
    for run in ended - summaries.keys():
        try:
            summary = _read_summary(root, run)
        except SentenceBeamError as error:
            damage[run] = error.line
            continue
        if summary is not None:
            summaries[run] = summary
    missing = {*begun, *ended, *snapshots(root)} - summaries.keys()
    everything = list(summaries.values())
    if missing:
        for summary in _find_without_result(root, missing, everything):
            message = damage.get(summary.run, summary.message)
            summaries[summary.run] = replace(summary, message=message)
    return [summaries[run] for run in sorted(summaries)]


def read_known_summaries(root: str) -> list[RunSummary]:
    """Return the summaries in the store's report, which saves reading results.

    Returns none if the report cannot be read.
    """
    try:
        return read_checked_summaries(root)
    except (SentenceBeamError, OSError):
        return []


def read_checked_summaries(root: str) -> list[RunSummary]:
    """Return the summaries in the store's report, none without a report.

    Raises SentenceBeamError if the report is damaged.
    """
    path = storage.join(root, layout.REPORT)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return []
    with refuse_damage(
        f"{path} is not the report that was written", "sentence-beam report makes another"
    ):
        content = json.loads(stored[0])
        check_digest(content)
        return [read_dataclass(RunSummary, summary) for summary in content["nights"]]


def _counts(result: Result) -> dict[str, Any]:
    """Return the fields of a summary that a result with a ledger has."""
    ledger = result.ledger
    values: dict[str, Any] = {name: ledger[name] for name in FROM_LEDGER}
    values |= result.changes or {}
    values |= _index(result.index)
    values |= {
        "rows": ledger["written"],
        "blank": ledger.get("blank"),
        "forgotten": ledger.get("forgotten"),
        "pieces": ledger.get("pieces"),
        "duplicate_ids": result.duplicate_ids,
        "damaged": len(result.damaged),
        "truncated": result.truncated,
        "tokens": ledger["real"],
        "spared": result.spared,
        "limit": result.limit or None,
        "measures": result.measures,
        "tokens_per_second": round(result.tokens / max(result.seconds, 1e-9), 1),
    }
    if result.checked:
        values["checked"] = result.checked["compared"] + result.checked["read"]
    return values


def _message(result: Result) -> str:
    """Return why the run failed, and the files that it left out with the reasons."""
    parts = []
    if result.message != COMMITTED:
        parts.append(result.message)
    inputs = result.input or {}
    left_out = list((inputs.get("bad") or {}).values())
    if len(left_out) == 1:
        parts.append(f"1 file was left out: {left_out[0]}")
    elif left_out:
        parts.append(f"{len(left_out)} files were left out: {'; '.join(left_out[:REASONS])}")
    return "; ".join(parts)


def _index(index: IndexEntry | None) -> dict[str, Any]:
    """Return the fields of a summary on the index."""
    values: dict[str, Any] = {"index": None, "recall": None}
    if index is not None:
        values["index"] = index.factory
        if index.recall is not None:
            values["recall"] = index.recall.value
    return values


def _answers(watch: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a summary on the answers to watched queries, if these were compared."""
    if watch is None:
        return {}
    return {
        "answer_change": watch["change"],
        "answers_beyond": watch["beyond"],
        "answer_overlap": watch["overlap"],
        "answer_causes": watch["causes"],
    }


def _list_recorded(root: str) -> tuple[set[str], set[str]]:
    """Return the runs that began, by their plans, and the runs that ended, by their results."""
    begun: set[str] = set()
    ended: set[str] = set()
    folder = storage.join(root, layout.RUNS)
    for entry in storage.storage_of(folder).below(folder):
        path = entry.path.removeprefix(f"{root}/")
        result_of = layout.result_run(path)
        if result_of:
            ended.add(result_of)
        run = path.split("/")[1]
        if run and path == layout.plan(run):
            begun.add(run)
    writer = lease.writer(root)  # it may have no plan yet
    if writer is not None:
        begun.add(writer)
    return begun, ended


def _read_summary(root: str, run: str) -> RunSummary | None:
    """Return the summary of a run by its result, None without one.

    Raises SentenceBeamError for a damaged result.
    """
    result = read_checked_result(root, run)
    if result is None:
        return None
    with refuse_damage(f"{root}: the result of run {run} lacks counts"):
        return RunSummary.from_result(result)


def _find_without_result(
    root: str, missing: Iterable[str], others: Iterable[RunSummary]
) -> list[RunSummary]:
    """Return the runs that left no result.

    A run is committed if the current snapshot is its own or descends from it; `others` are the
    runs with a result.
    """
    ancestors = {summary.previous for summary in select_committed(others)}
    current = read_manifest(root)
    if current is not None:
        ancestors.add(current.run)
    summaries = []
    for run in sorted(missing, reverse=True):
        manifest = read_manifest(root, run) if run in ancestors else None
        if manifest is not None:
            ancestors.add(manifest.previous)
            summaries.append(RunSummary.from_manifest(manifest))
        else:
            status = "running" if lease.is_alive(root, run) else UNFINISHED
            summaries.append(RunSummary(run, status, parse_start(run)))
    return summaries
