"""The report beside a store's snapshots: counts of every run as JSON, and a page with charts."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import first_line
from sentence_beam.transforms.report.report_page import render_report
from sentence_beam.transforms.report.run_history import (
    RunSummary,
    find_last_committed,
    read_known_summaries,
    read_summaries,
)
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes

FORMAT = 1
_LOGGER = logging.getLogger(__name__)


def write_report(root: str) -> None:
    """Write `report.json` and `report.html` of a store, up to the last run that ended."""
    summaries = read_summaries(root, read_known_summaries(root))
    storage.replace(storage.join(root, layout.REPORT), to_bytes(sealed(make_report(summaries))))
    html = render_report(root, summaries, read_manifest(root))
    storage.replace(storage.join(root, layout.PAGE), html.encode())


def bring_up_to_date(root: str) -> None:
    """Write the report of a store with a new snapshot; failures are logged, not raised."""
    try:
        write_report(root)
    except Exception as error:
        _LOGGER.error(
            "%s: the report was not written (%s); sentence-beam report makes one",
            root,
            first_line(error),
        )


def make_report(summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """Return the content of `report.json`.

    It has the fields of the last committed run, and the fields of all runs under `nights`.
    """
    content: dict[str, Any] = {"format": FORMAT}
    last = find_last_committed(summaries)
    if last is not None:
        content |= asdict(last)
    content["nights"] = [asdict(summary) for summary in summaries]
    return content


def find_summary(root: str, run: str) -> RunSummary | None:
    """Return the summary of a run from the report, None if the report lacks it."""
    return next((summary for summary in read_known_summaries(root) if summary.run == run), None)
