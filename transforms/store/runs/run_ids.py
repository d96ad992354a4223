"""Ids of runs: the start in UTC to the millisecond and six random hex digits.

Ids sort by time and are unique, as `20261122T153748_123Z-fff87f`.
"""

import re
import uuid
from datetime import UTC, datetime, timedelta

from sentence_beam.transforms import storage
from sentence_beam.transforms.store import layout


def make_run_id(root: str | None = None) -> str:
    """Return the id of a run that starts now.

    It is greater than the id of every run of the store `root`, if given.
    """
    last = find_last_run(root) if root else None
    return make_following_id(last, datetime.now(UTC))


def make_following_id(last: str | None, now: datetime) -> str:
    """Return an id for a run that starts at `now`, or just after the run `last`, if later."""
    before = _parse_moment(last) if last else None
    if before is not None:
        now = max(now, before + timedelta(milliseconds=1))
    return f"{now:%Y%m%dT%H%M%S}_{now.microsecond // 1000:03d}Z-{uuid.uuid4().hex[:6]}"


def find_last_run(root: str) -> str | None:
    """Return the greatest id among the runs of a store, failed ones included, or None."""
    return max(list_runs(root), default=None)


def list_runs(root: str) -> set[str]:
    """Return the runs of a store that have a folder, failed ones included."""
    folder = storage.join(root, layout.RUNS)
    paths = (
        entry.path.removeprefix(f"{folder}/") for entry in storage.storage_of(folder).below(folder)
    )
    return {run for run in {path.partition("/")[0] for path in paths} if _parse_moment(run)}


def parse_start(run: str) -> str:
    """The start that an id states, ISO 8601; empty for a name that is no run's id.

    >>> start_of("20261122T153748_123Z-fff87f")
    '2026-11-22T15:37:48.123Z'
    """
    if re.fullmatch(layout.RUN_ID, run) is None:
        return ""
    time = f"{run[9:11]}:{run[11:13]}:{run[13:15]}.{run[16:19]}"
    return f"{run[:4]}-{run[4:6]}-{run[6:8]}T{time}Z"


def _parse_moment(run: str) -> datetime | None:
    try:
        return datetime.fromisoformat(parse_start(run))
    except ValueError:  # no id, or no date
        return None
