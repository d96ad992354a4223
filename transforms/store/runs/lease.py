"""The lease: which run is writing. It saves work; the conditional commit protects the data."""

import contextlib
import functools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import NoReturn

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs.lease_file import Lease, read_lease
from sentence_beam.transforms.store.runs.run_result import has_committed

STALE_SECONDS = 600
# Of an engine's job, which is silent while it waits for machines.
ENGINE_STALE_SECONDS = 6 * 3600
RENEW_SECONDS = 60
# If others renew the lease, a process looks less and less often: two hundred processes make one
# look a second.
SELDOM = 4
ANSWER_SECONDS = 5
RUNS_IN_A_PROCESS = 16
# stores and runs that gave up their lease in this process, or tried to
_ENDED_HERE: set[tuple[str, str]] = set()


class JobState(Enum):
    """The state of a job as its engine reports it; UNLISTED if the engine lacks the name."""

    RUNNING = "running"
    ENDED = "ended"
    UNLISTED = "unlisted"
    UNKNOWN = "unknown"


# The seconds of silence after which a lease of a job in this state may be taken over; one that is
# not there may be about to be submitted.
SILENCE = {
    JobState.RUNNING: math.inf,
    JobState.ENDED: -math.inf,
    JobState.UNLISTED: STALE_SECONDS,
    JobState.UNKNOWN: ENGINE_STALE_SECONDS,
}


def no_word(_: Lease) -> JobState:
    """Return the state of a lease's job if no engine can be queried."""
    return JobState.UNKNOWN


def check(root: str, ask: Callable[[Lease], JobState] = no_word) -> str | None:
    """Return the version of a lease that may be taken over.

    `ask` returns the state of its job if an engine has it. Raises SentenceBeamError naming run and
    job if the lease is held.
    """
    current, version = read_lease(root)
    if (
        current is not None
        and not current.is_of_the_dead
        and (root, current.run) not in _ENDED_HERE
    ):
        limit = SILENCE[ask(current)] if current.pid is None else STALE_SECONDS
        if not _is_silent(root, limit):
            _refuse_held(root, current)
    return version


def _is_silent(root: str, limit: float) -> bool:
    """Return whether the lease was last written more than `limit` seconds ago.

    The clock is the storage's, which all writers share.
    """
    path = storage.join(root, layout.LEASE)
    written = storage.storage_of(path).stat(path)
    return written is None or storage.time_of_storage(path) - written.modified > limit


def holds(root: str, run: str) -> bool:
    """Return whether this run still holds the lease of a store."""
    return writer(root) == run


def writer(root: str) -> str | None:
    """Return the run that holds the lease of a store, alive or not; None without a lease."""
    lease, _ = read_lease(root)
    return lease.run if lease is not None else None


def is_alive(root: str, run: str) -> bool:
    """Return whether a run holds the lease of a store and has renewed it lately.

    The clock is the caller's. This serves lists of runs, whose readers may not be allowed to write,
    which asking the storage for its time needs.
    """
    lease, _ = read_lease(root)
    if lease is None or lease.run != run or lease.is_of_the_dead:
        return False
    path = storage.join(root, layout.LEASE)
    written = storage.storage_of(path).stat(path)
    limit = STALE_SECONDS if lease.pid is not None else ENGINE_STALE_SECONDS
    return written is not None and time.time() - written.modified <= limit


def acquire(root: str, lease: Lease, ask: Callable[[Lease], JobState] = no_word) -> None:
    """Take a store's lease for a run.

    Raises SentenceBeamError naming the run and job that hold it.
    """
    version = check(root, ask)
    path = storage.join(root, layout.LEASE)
    if not storage.storage_of(path).replace_if(path, lease.to_bytes(), version):
        taken, _ = read_lease(root)
        _refuse_held(root, taken or lease)
    _ENDED_HERE.discard((root, lease.run))


def _refuse_held(root: str, lease: Lease) -> NoReturn:
    """Raise SentenceBeamError naming the run and job that hold a lease."""
    where = f"process {lease.pid} on {lease.host}" if lease.pid else f"submitted from {lease.host}"
    until = f"{STALE_SECONDS // 60} minutes after its last sign of life"
    if lease.pid is None:
        until = (
            f"until the engine says that it ended, or {ENGINE_STALE_SECONDS // 3600} hours without"
            " a sign of life"
        )
    raise SentenceBeamError(
        f"{root} is being written by run {lease.run} (job {lease.job}, {lease.runner}, {where}); "
        f"wait for it, or {until}"
    )


def lost(root: str) -> SentenceBeamError:
    """Return the error of a run that no longer has the lease it took."""
    return SentenceBeamError(
        f"{root}: the lease was taken from this run while it gave no sign of life, and files it"
        " counts on may have been removed; nothing was committed, run again"
    )


class Looks:
    """A process's looks at the lease of a run, which renew it: one in one to four minutes.

    No work fails or waits long for a storage that is slow or refuses: another process or a later
    look renews the lease. `is_lost` says that the last look found the lease with another run, or
    with none, before the run had committed.
    """

    def __init__(self, root: str, run: str):
        self._root = root
        self._run = run
        self._lock = threading.Lock()
        self._pause = 1.0
        self._bodies = 0  # of `kept_alive` that run now: one thread looks for all of them
        self._all_ended = threading.Event()
        self._beat = threading.Thread()
        self.is_lost = False
        # Workers that begin together should not look together.
        self._next = time.monotonic() + RENEW_SECONDS * random.uniform(0.5, 1.0)

    @property
    def seconds_left(self) -> float:
        """The time until the next look."""
        return max(0.0, self._next - time.monotonic())

    def look_if_due(self) -> None:
        """Look at the lease if it is time."""
        if self._is_due():
            look = threading.Thread(target=self._look, daemon=True)
            look.start()
            look.join(ANSWER_SECONDS)

    def begin_body(self) -> None:
        """Look on a thread, whenever it is due, until each body that began has ended."""
        with self._lock:
            self._bodies += 1
            if self._bodies == 1:
                self._all_ended = threading.Event()
                self._beat = threading.Thread(
                    target=self._look_until, args=(self._all_ended,), daemon=True
                )
                self._beat.start()

    def end_body(self) -> None:
        """End a body; after the last one nobody looks."""
        with self._lock:
            self._bodies -= 1
            is_last = not self._bodies
            beat = self._beat
            if is_last:
                self._all_ended.set()
        if is_last:
            beat.join()

    def _look_until(self, ended: threading.Event) -> None:
        self.look_if_due()  # also if each body takes no time: they may be many
        while not ended.wait(self.seconds_left):
            self.look_if_due()

    def _is_due(self) -> bool:
        """Return whether it is time to look; only one of several threads gets True."""
        with self._lock:
            due = self.seconds_left <= 0
            if due:
                self._next = time.monotonic() + RENEW_SECONDS * self._pause
            return due

    def _look(self) -> None:
        with contextlib.suppress(Exception):
            renewed = renew(self._root, self._run)
            # A job that an engine does again after its commit has no lease any more, and is to find
            # that commit.
            self.is_lost = renewed is Renewed.LOST and not has_committed(self._root, self._run)
            if renewed is Renewed.BY_OTHERS:
                self._pause = min(SELDOM, 2 * self._pause)
            else:
                self._pause = max(1, self._pause / 2)


@functools.lru_cache(maxsize=RUNS_IN_A_PROCESS)
def get_looks(root: str, run: str) -> Looks:
    """Return this process's looks at the lease of a run, shared by its steps and threads."""
    return Looks(root, run)


class Renewal:
    """Renewal of a run's lease by a step that finishes something now and then.

    `leased` says that the run has taken the lease, and so must not work on without it.
    """

    def __init__(self, root: str, run: str, leased: bool):
        self._root = root
        self._leased = leased
        self._looks = get_looks(root, run)

    def __call__(self) -> None:
        """Renew the lease if it is time.

        Raises SentenceBeamError if another run took it.
        """
        self._looks.look_if_due()
        if self._looks.is_lost and self._leased:
            raise lost(self._root)


class Renewed(Enum):
    """The result of renewing a lease."""

    LOST = "lost"
    NOW = "now"
    BY_OTHERS = "by others"


def renew(root: str, run: str) -> Renewed:
    """Renew the lease of a store if this run holds it and no process has renewed it just now.

    Storage takes about one write a second of an object, and many processes work for a run.
    """
    lease, version = read_lease(root)
    if lease is None or lease.run != run:
        return Renewed.LOST
    # another host's clock may be a little ahead
    if abs(time.time() - lease.renewed) < RENEW_SECONDS / 2:
        return Renewed.BY_OTHERS
    path = storage.join(root, layout.LEASE)
    done = storage.storage_of(path).replace_if(
        path, replace(lease, renewed=time.time()).to_bytes(), version
    )
    return Renewed.NOW if done else Renewed.BY_OTHERS


@contextlib.contextmanager
def kept_alive(root: str, run: str) -> Iterator[None]:
    """Renew the lease while the body runs, also in steps that finish no unit.

    Such steps list files or train an index. No body ends because the lease was lost: the commit
    checks whose it is.
    """
    looks = get_looks(root, run)
    looks.begin_body()
    try:
        yield
    finally:
        looks.end_body()


def release(root: str, run: str) -> None:
    """Give up the lease of a store, if this run still holds it.

    If that fails (a full disk has no room for a lock), the next run of this process takes the lease
    over.
    """
    _ENDED_HERE.add((root, run))
    path = storage.join(root, layout.LEASE)
    lease, version = read_lease(root)
    while lease is not None and version is not None and lease.run == run:
        if storage.storage_of(path).delete_if(path, version):
            return
        lease, version = read_lease(root)  # it was renewed in between
