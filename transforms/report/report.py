"""The report beside a store's snapshots: the counts of every run as JSON, and a page with
charts.
"""

import logging
from dataclasses import asdict
from typing import Any

from transforms import storage
from transforms.base.errors import first_line
from transforms.report.history import RunSummary, known_summaries, run_summaries
from transforms.report.page import page
from transforms.store import layout
from transforms.store.manifest import read_manifest, sealed, to_bytes
from transforms.store.runs.result import COMMITTED

FORMAT = 1
_LOGGER = logging.getLogger(__name__)


def write_report(root: str) -> None:
    """Write `report.json` and `report.html` of a store, up to the last run that ended."""
    found = run_summaries(root, known_summaries(root))
    _put(root, layout.REPORT, to_bytes(sealed(report(found))))
    _put(root, layout.PAGE, page(root, found, read_manifest(root)).encode())


def bring_up_to_date(root: str) -> None:
    """Write the report of a store that has a new snapshot; what keeps it from being written is
    logged, not raised.
    """
    try:
        write_report(root)
    except Exception as error:
        _LOGGER.error(
            "%s: the report was not written (%s); sentence-beam report makes one",
            root,
            first_line(error),
        )


def report(found: list[RunSummary]) -> dict[str, Any]:
    """The content of `report.json`: the fields of the last committed run, and those of all runs
    under `nights`.
    """
    last = next((summary for summary in reversed(found) if summary.status == COMMITTED), None)
    return {
        "format": FORMAT,
        **(asdict(last) if last else {}),
        "nights": [asdict(summary) for summary in found],
    }


def summary_of(root: str, run: str) -> RunSummary | None:
    """The summary of a run in the report; None where it is not in there."""
    return next((summary for summary in known_summaries(root) if summary.run == run), None)


def _put(root: str, name: str, data: bytes) -> None:
    storage.replace(storage.join(root, name), data)  # else another run has just written a later one
