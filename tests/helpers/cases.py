"""What a campaign tried, for the end of the tests' output."""

from collections.abc import Iterable, Iterator
from typing import Any

TRIED = "tried"


def tried(reports: Iterable[Any]) -> Iterator[str]:
    """The lines that tests of a campaign have said, as `tell` of `tests/faults` takes them."""
    for report in reports:
        if getattr(report, "when", "") == "call":
            yield from (line for name, line in report.user_properties if name == TRIED)
