"""The alerts of the report: facts to look at first, each with its threshold."""

from collections.abc import Sequence

from sentence_beam.transforms.report.run_history import RunSummary, select_committed
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.run_result import COMMITTED

MANY_DELETED = 0.1  # of the rows of the previous snapshot
NEARLY_TOO_MANY = 0.5  # of the fraction that --max-rejects allows
FALLEN = 0.02  # of recall since the previous run


def find_alerts(manifest: Manifest | None, summaries: Sequence[RunSummary]) -> list[str]:
    """Return one sentence for each finding about the current snapshot and the last runs.

    `summaries` are the store's runs, oldest first; `manifest` is None without a snapshot.
    """
    lines = _check_last_end(summaries)
    committed = select_committed(summaries)
    if not committed:
        return lines
    last = committed[-1]
    lines += _check_deleted(last)
    lines += _check_rejected(last, manifest)
    lines += _check_moved(last)
    lines += _check_left_out(committed)
    lines += _check_damaged(last)
    lines += _check_measured_recall(manifest)
    lines += _check_fallen_recall(committed)
    return lines


def _check_last_end(summaries: Sequence[RunSummary]) -> list[str]:
    if not summaries or summaries[-1].status in (COMMITTED, "running"):
        return []
    last = summaries[-1]
    return [f"The last run committed nothing: {last.message or last.status}."]


def _check_deleted(last: RunSummary) -> list[str]:
    if not last.deleted:
        return []
    previous = (last.stored or 0) - (last.added or 0) + last.deleted
    if last.deleted <= MANY_DELETED * previous:
        return []
    percent = 100 * last.deleted / previous
    return [
        f"{last.deleted:,} of {previous:,} rows were deleted ({percent:.0f} %);"
        f" the threshold is {100 * MANY_DELETED:g} %."
    ]


def _check_rejected(last: RunSummary, manifest: Manifest | None) -> list[str]:
    allowed = RememberedOptions.max_rejects if manifest is None else manifest.options.max_rejects
    threshold = NEARLY_TOO_MANY * allowed
    blank = last.blank or 0  # --max-rejects does not count blank lines of text files
    expected = blank + (last.forgotten or 0)
    rejected = (last.rejected or 0) - expected
    read = (last.read or 0) - expected
    if not rejected or rejected <= threshold * read:
        return []
    return [
        f"{rejected:,} of {read:,} rows were rejected ({100 * rejected / read:.2g} %);"
        f" the threshold is {100 * threshold:g} %, half of what --max-rejects allows."
    ]


def _check_moved(last: RunSummary) -> list[str]:
    if not last.moved or last.moved["distance"] <= last.moved["far"]:
        return []
    return [
        f"The rows lie {last.moved['distance']:.2f} deviations from those that the calibration was"
        f" fitted on; the threshold is {last.moved['far']:g}. Fit the calibration again, then"
        " recalibrate."
    ]


def _check_left_out(committed: Sequence[RunSummary]) -> list[str]:
    """Return the message of the last run that read the input: the files that it left out."""
    read_input = [summary for summary in committed if summary.command in ("embed", "")]
    last = (read_input or committed)[-1]
    return [f"{last.message}."] if last.message else []


def _check_damaged(last: RunSummary) -> list[str]:
    if not last.damaged:
        return []
    return [
        f"{last.damaged:,} shards of the previous snapshot were damaged or missing;"
        " the threshold is 0."
    ]


def _check_measured_recall(manifest: Manifest | None) -> list[str]:
    if manifest is None or manifest.index is None or manifest.index.recall is None:
        return []
    recall = manifest.index.recall
    if recall.high >= recall.target:
        return []
    return [
        f"Recall@{recall.k} is {recall.value:.4f}, at most {recall.high:.4f};"
        f" its target is {recall.target:g}."
    ]


def _check_fallen_recall(committed: Sequence[RunSummary]) -> list[str]:
    recalls = [summary.recall for summary in committed[-2:]]
    if len(recalls) < 2:
        return []
    previous, last = recalls
    if previous is None or last is None or last >= previous - FALLEN:
        return []
    return [
        f"Recall@10 fell from {previous:.4f} to {last:.4f}; the threshold is a fall by {FALLEN:g}."
    ]
