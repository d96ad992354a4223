"""Times as manifests and results write them."""

from datetime import datetime, timezone


def now() -> str:
    """The time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp(time: str) -> float:
    """Seconds since 1970 of such a time.

    >>> timestamp("1970-01-02T00:00:00.500Z")
    86400.5
    """
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
