"""The lease: which run is writing. It saves the cost of two runs at once; the conditional commit protects the data."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.store import layout

STALE_SECONDS = 600
RENEW_SECONDS = 60


@dataclass(frozen=True)
class Lease:
    """One writer: run id, host and process (pid None where the work outlives the submitting process), engine's job."""

    run: str
    host: str
    pid: int | None
    runner: str
    job: str
    renewed: float

    @classmethod
    def of_this_process(cls, run: str, runner: str, job: str, in_process: bool) -> "Lease":
        """A lease for a run that starts now."""
        return cls(run, socket.gethostname(), os.getpid() if in_process else None, runner, job, time.time())

    def is_stale(self) -> bool:
        """Whether the lease may be taken over: not renewed for ten minutes, or held by a dead process of this host."""
        if self.pid is not None and self.host == socket.gethostname() and not _alive(self.pid):
            return True
        return time.time() - self.renewed > STALE_SECONDS

    def to_bytes(self) -> bytes:
        """The lease as its file's bytes."""
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(root: str) -> tuple[Lease | None, str | None]:
    """The lease and its version. One that cannot be parsed counts as nobody's: its writer died while writing."""
    path = storage.join(root, layout.LEASE)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        return None, None
    try:
        lease = Lease(**json.loads(found[0]))
        lease.is_stale()  # fails where a field is of another type
        return lease, found[1]
    except (ValueError, TypeError, OverflowError):
        return None, found[1]


def check(root: str) -> str | None:
    """The version of a lease that may be taken over. Raises SentenceBeamError naming run and job where it may not."""
    current, version = _read(root)
    if current is not None and not current.is_stale():
        raise _held(root, current)
    return version


def holds(root: str, run: str) -> bool:
    """Whether the lease of a store is still held by this run."""
    lease, _ = _read(root)
    return lease is not None and lease.run == run


def is_alive(root: str, run: str) -> bool:
    """Whether a run holds the lease of a store and has renewed it lately."""
    lease, _ = _read(root)
    return lease is not None and lease.run == run and not lease.is_stale()


def acquire(root: str, lease: Lease) -> None:
    """Take a store's lease for a run. Raises SentenceBeamError naming the run and job that hold it."""
    version = check(root)
    path = storage.join(root, layout.LEASE)
    if not storage.storage_of(path).replace_if(path, lease.to_bytes(), version):
        taken, _ = _read(root)
        raise _held(root, taken or lease)


def _held(root: str, lease: Lease) -> SentenceBeamError:
    where = f"process {lease.pid} on {lease.host}" if lease.pid else f"submitted from {lease.host}"
    return SentenceBeamError(
        f"{root} is being written by run {lease.run} (job {lease.job}, {lease.runner}, {where}); "
        f"wait for it, or {STALE_SECONDS // 60} minutes after its last sign of life"
    )


class Renewal:
    """Renewal of a run's lease by whatever process works for it, at most once a minute each."""

    def __init__(self, root: str, run: str):
        self._root, self._run, self._next = root, run, time.monotonic() + RENEW_SECONDS

    def __call__(self) -> None:
        """Renew the lease if a minute has passed and it is still held by this run."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + RENEW_SECONDS
        renew(self._root, self._run)


def renew(root: str, run: str) -> None:
    """Renew the lease of a store, if it is still held by this run."""
    lease, version = _read(root)
    if lease is not None and lease.run == run:
        path = storage.join(root, layout.LEASE)
        storage.storage_of(path).replace_if(path, replace(lease, renewed=time.time()).to_bytes(), version)


@contextlib.contextmanager
def kept_alive(root: str, run: str) -> Iterator[None]:
    """Renew the lease while the body runs, also through steps that finish no unit (listing, training an index)."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(RENEW_SECONDS):
            with contextlib.suppress(Exception):  # the next beat tries again; the commit looks whose the lease is
                renew(root, run)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def release(root: str, run: str) -> None:
    """Give up the lease of a store, if it is still held by this run."""
    path = storage.join(root, layout.LEASE)
    lease, version = _read(root)
    while lease is not None and version is not None and lease.run == run:
        if storage.storage_of(path).delete_if(path, version):
            return
        lease, version = _read(root)  # it was renewed in between
