"""The file of the lease: the run that writes a store, and its process."""

import json
import os
import socket
import time
from dataclasses import asdict, dataclass

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs import writer_process

WRITING_SECONDS = 1


@dataclass(frozen=True)
class Lease:
    """A writer: run id, host and process (pid None if the work outlives that process).

    `job` is the engine's name of the job, `engine` the engine's address ("" if it cannot be
    queried). `boot` and `pid_namespace` tell whether `pid` means a process of this machine,
    `process_start` which of all that ever have that id (`writer_process.py`); all three are None if
    the host cannot tell. `machine` names the machine in all its boots, "" in case of doubt.
    `renewed` is by the clock of the host that renewed it; taking over does not depend on it.
    """

    run: str
    host: str
    pid: int | None
    runner: str
    job: str
    renewed: float
    boot: str | None = None
    pid_namespace: str | None = None
    process_start: int | None = None
    machine: str = ""
    engine: str = ""

    @classmethod
    def from_this_process(
        cls, run: str, runner: str, job: str, in_process: bool, engine: str = ""
    ) -> "Lease":
        """Return a lease for a run that starts now."""
        host = socket.gethostname()
        here = (writer_process.read_boot_id(), writer_process.pid_namespace())
        machine = writer_process.machine()
        if not in_process:
            return cls(
                run, host, None, runner, job, time.time(), *here, machine=machine, engine=engine
            )
        pid = os.getpid()
        start = writer_process.read_start(pid)
        return cls(run, host, pid, runner, job, time.time(), *here, start, machine)

    @property
    def is_of_the_dead(self) -> bool:
        """Whether its process is known to have ended.

        This is known for processes of this machine, if it was started again since, and for those of
        the same boot and the same process ids.
        """
        if self.pid is None:
            return False
        if self.boot is None:
            return self.host == socket.gethostname() and writer_process.read_start(self.pid) is None
        here = writer_process.read_boot_id(), writer_process.pid_namespace()
        if not all(here) or not self.boot:
            return False
        if here[0] != self.boot:
            here_too = (socket.gethostname(), writer_process.machine())
            return bool(self.machine) and (self.host, self.machine) == here_too
        if here[1] != self.pid_namespace:
            return False
        start = writer_process.read_start(self.pid)
        return start is None or (
            0 not in (start, self.process_start) and start != self.process_start
        )

    def to_bytes(self) -> bytes:
        """Return the bytes of the lease's file."""
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()


def read_lease(root: str) -> tuple[Lease | None, str | None]:
    """Return the lease and its version.

    A file that cannot be parsed, and does not change, belongs to nobody: its writer died while
    writing.
    """
    lease, version = _try_read(root)
    # or it is being written: some storage writes in place (hdfs://)
    if lease is None and version is not None:
        time.sleep(WRITING_SECONDS)
        lease, version = _try_read(root)
    return lease, version


def _try_read(root: str) -> tuple[Lease | None, str | None]:
    """Return the lease, None if it is missing or cannot be parsed, and its version."""
    path = storage.join(root, layout.LEASE)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return None, None
    try:
        with refuse_damage("not a lease"):
            lease: Lease = read_dataclass(Lease, json.loads(stored[0]))
            _ = lease.is_of_the_dead  # fails for a process id that no system has
    except SentenceBeamError:
        return None, stored[1]
    return lease, stored[1]
