"""The history of a store: every run, how it ended, and what it cost."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from transforms import storage
from transforms.base.entries import dataclass_of
from transforms.base.errors import SentenceBeamError, refuse_damage
from transforms.base.measures import Measures
from transforms.store import layout
from transforms.store.entries import IndexEntry
from transforms.store.manifest import Manifest, check_digest, read_manifest, snapshots
from transforms.store.runs import lease
from transforms.store.runs.result import COMMITTED, Result, checked_result, timestamp
from transforms.store.runs.run_ids import in_order, start_of

UNFINISHED = "unfinished"
FROM_LEDGER = ("read", "rejected", "embedded", "reused", "duplicates", "carried")
REASONS = 10  # of files that were left out, in a line


@dataclass(frozen=True)
class RunSummary:
    """One run. What is not known of it is None.

    `status` is "committed", "failed", "running" or "unfinished" (it ended without a word). `rows`
    are those of its snapshot, as are `rejected` and `truncated` ones; `blank` of the rejected ones
    are blank lines of text files. `embedded`, `reused`, `duplicates` and `carried` say how rows
    came by their vectors; `added`, `changed` and `deleted` are against the snapshot before.
    `tokens` went through the model, `tokens_per_second` of them in this run itself (one that broke
    off before it may have left some), `spared` were those of rows that had their vectors already.
    `damaged` are old shards that could not be reused or carried over, `checked` those carried whose
    bytes or checksum were compared. `spent` and `saved` are in the currency of `price_per_hour`.
    `command` is "embed", "index", "recalibrate" or "rollback", "" for a run of an earlier version;
    `moved` as in Result. `measures` say what its stages took, `limit` which part of Embed held up
    the others. Where rows are documents, `pieces` are what these were cut into, and what was
    embedded, reused, carried, truncated, added, changed and deleted. `tables` are the versions of
    the tables that were its input.
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
    price_per_hour: float | None = None
    spent: float | None = None
    saved: float | None = None
    currency: str = ""
    command: str = ""
    moved: dict[str, float] | None = None
    limit: str | None = None
    measures: Measures | None = None
    tables: dict[str, str] | None = None

    @property
    def stored(self) -> int | None:
        """The rows of all shards: those of the input, or the pieces of its documents."""
        return self.rows if self.pieces is None else self.pieces

    @classmethod
    def of_result(cls, result: Result) -> "RunSummary":
        """The summary of a run that recorded how it ended."""
        price, ledger = result.price_per_hour, result.ledger
        values: dict[str, Any] = {
            "run": result.run,
            "status": result.status,
            "started": result.started or start_of(result.run),
            "seconds": result.seconds,
            "message": _message(result),
            "previous": result.previous,
            "space": result.space,
            "pooled": result.pooled,
            "price_per_hour": price,
            "currency": result.currency,
            "command": result.command,
            "moved": result.moved,
            "tables": (result.input or {}).get("tables"),
            "spent": None if price is None else round(price * result.seconds / 3600, 6),
        }
        if ledger:
            values |= (
                {name: ledger[name] for name in FROM_LEDGER}
                | (result.changes or {})
                | _index(result.index)
            )
            values |= {
                "rows": ledger["written"],
                "blank": ledger.get("blank"),
                "pieces": ledger.get("pieces"),
                "duplicate_ids": result.duplicate_ids,
                "damaged": len(result.damaged),
                "checked": (
                    result.checked["compared"] + result.checked["read"] if result.checked else None
                ),
                "truncated": result.truncated,
                "tokens": ledger["real"],
                "spared": result.spared,
                "limit": result.limit or None,
                "measures": result.measures,
                "tokens_per_second": round(result.tokens / max(result.seconds, 1e-9), 1),
            }
        return cls(**values)

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> "RunSummary":
        """The summary of a run that has a snapshot, though its result was never written."""
        return cls(
            run=manifest.run,
            status=COMMITTED,
            started=manifest.started,
            seconds=round(timestamp(manifest.finished) - timestamp(manifest.started), 3),
            previous=manifest.previous,
            space=manifest.space.id,
            pooled=manifest.space.pooled_id,
            rows=manifest.rows.written,
            pieces=manifest.rows.pieces,
            read=manifest.rows.read,
            rejected=manifest.rows.rejected,
            tokens=manifest.tokens.real,
            tables=manifest.input.tables or None,
            **manifest.work.to_json(),
            **_index(manifest.index),
        )


def _message(result: Result) -> str:
    """What is to be said of a run beside its figures: why it failed, or which files were left out
    and why.
    """
    bad = list(((result.input or {}).get("bad") or {}).values())
    said = [] if result.message == COMMITTED else [result.message]
    said += (
        [
            f"{len(bad)} file{'s were' if len(bad) > 1 else ' was'} left out:"
            f" {'; '.join(bad[:REASONS])}"
        ]
        if bad
        else []
    )
    return "; ".join(said)


def _index(index: IndexEntry | None) -> dict[str, Any]:
    recall = index.recall if index else None
    return {"index": index.factory if index else None, "recall": recall.value if recall else None}


def run_summaries(root: str, known: Iterable[RunSummary] = ()) -> list[RunSummary]:
    """Every run of a store by its start, the oldest first; `known` ones, which have ended, are not
    read again.
    """
    folder = storage.join(root, layout.RUNS)
    paths = [
        entry.path.removeprefix(f"{root}/") for entry in storage.storage_of(folder).below(folder)
    ]
    ended = {run for path in paths if (run := layout.result_run(path))}
    begun = {run for path in paths if (run := path.split("/")[1]) and path == layout.plan(run)}
    # it may not have got to its plan
    begun |= {run for run in [lease.writer(root)] if run is not None}
    found = {summary.run: summary for summary in known if summary.run in ended}
    damaged: dict[str, str] = {}
    for run in ended - found.keys():
        try:
            summary = _of_run(root, run)
        except SentenceBeamError as error:
            damaged[run] = str(error)
            continue
        if summary is not None:
            found[run] = summary
    missing = {*begun, *ended, *snapshots(root)} - set(found)
    rest = _without_result(root, missing, found.values()) if missing else []
    rest = [replace(summary, message=damaged.get(summary.run, summary.message)) for summary in rest]
    return with_savings(
        sorted((*found.values(), *rest), key=lambda summary: in_order(summary.run, summary.started))
    )


def known_summaries(root: str) -> list[RunSummary]:
    """The summaries that the store's report holds, which spares reading the results; none if it
    cannot be read.
    """
    try:
        return checked_summaries(root)
    except (SentenceBeamError, OSError):
        return []


def checked_summaries(root: str) -> list[RunSummary]:
    """The summaries that the store's report holds, none without one. Raises SentenceBeamError if it
    is damaged.

    A report of an earlier version, which has no digest, is not believed.
    """
    path = storage.join(root, layout.REPORT)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        return []
    with refuse_damage(
        f"{path} is not the report that was written", "sentence-beam report makes another"
    ):
        said = json.loads(found[0])
        check_digest(said, ())
        return [dataclass_of(RunSummary, summary) for summary in said["nights"]]


def with_savings(ordered: list[RunSummary]) -> list[RunSummary]:
    """The summaries with `saved`: the time that the spared tokens would have taken, at the price of
    the run.

    The speed assumed is the best of any run so far with these pooled vectors, since a small run
    mostly takes the time to start.
    """
    best: dict[str, float] = {}
    found = []
    for summary in ordered:
        speed = best[summary.pooled] = max(
            best.get(summary.pooled, 0.0), summary.tokens_per_second or 0.0
        )
        priced = summary.price_per_hour is not None and summary.spared is not None and speed > 0
        saved = summary.spared / speed * summary.price_per_hour / 3600 if priced else None  # type: ignore[operator]
        found.append(replace(summary, saved=None if saved is None else round(saved, 6)))
    return found


def _of_run(root: str, run: str) -> RunSummary | None:
    """The summary of a run by its result, None without one. Raises SentenceBeamError for a damaged
    result.
    """
    result = checked_result(root, run)
    with refuse_damage(f"{root}: the result of run {run} lacks counts"):
        return RunSummary.of_result(result) if result is not None else None


def _without_result(
    root: str, missing: Iterable[str], found: Iterable[RunSummary]
) -> list[RunSummary]:
    """Runs that left no result: committed where the current snapshot is theirs or follows from
    theirs.
    """
    current = read_manifest(root)
    followed = {summary.previous for summary in found if summary.status == COMMITTED} | {
        current.run if current else None
    }
    rest = []
    for run in sorted(missing, reverse=True):
        manifest = read_manifest(root, run) if run in followed else None
        if manifest is not None:
            followed.add(manifest.previous)
            rest.append(RunSummary.of_manifest(manifest))
        else:
            status = "running" if lease.is_alive(root, run) else UNFINISHED
            rest.append(RunSummary(run, status, start_of(run)))
    return rest
