"""A clock that tests turn: what the code under test calls `time` is replaced by it."""

import threading


class Clock:
    """The module `time` with one clock, `now`; it stands still unless somebody sleeps or turns it."""

    now = 1_000_000.0

    def time(self) -> float:
        """The time."""
        return self.now

    def monotonic(self) -> float:
        """The same time."""
        return self.now

    def perf_counter(self) -> float:
        """The same time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Turn the clock on."""
        self.now += seconds


class ClockOfEachThread(threading.local, Clock):
    """A clock of each thread's own."""
