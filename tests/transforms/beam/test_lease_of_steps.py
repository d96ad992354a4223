"""The lease is renewed by the steps themselves: where nobody waits for the job, nobody else does
it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from helpers import eager, fake_storage
from helpers.clock import Clock
from helpers.nights import Nights

from sentence_beam.transforms.beam import BuildIndex, Commit, IndexRequest, Settle
from sentence_beam.transforms.store.runs import lease, lease_file
from sentence_beam.transforms.store.runs.commit import Run

pytest.importorskip("faiss")

REQUEST = IndexRequest("IVF4,Flat")
FILES = {
    name: [(f"{name}{i}", f"{'abcd'[i % 4]} {name} {i}") for i in range(40)]
    for name in ("x", "y", "z")
}
CHANGED = {**FILES, "z": [*FILES["z"][2:], ("new", "a new one")]}
# That the storage takes for each request, as the lease's clock has it: the longest step, which makes
# a damaged range again, has some 40 requests, and within a step a thread renews by the real clock.
SECONDS = 12
ASKED = ("open", "stat", "read_versioned", "put_if_absent", "replace_if")


class Silence(Clock):
    """How long the lease of a run was not renewed, at worst, by a clock that each request to the
    storage turns on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.worst = 0.0
        self._renewed = self.now
        monkeypatch.setattr(lease, "time", self)
        monkeypatch.setattr(lease_file, "time", self)
        for name in ASKED:
            fake_storage.meet(monkeypatch, name, self._slow)

    def _slow(self, path: str, *rest: Any) -> None:
        if not path.endswith("lease.json"):
            self.now += SECONDS
            self.worst = max(self.worst, self.now - self._renewed)
        elif rest:
            self._renewed = json.loads(rest[0])["renewed"]


class Night(beam.PTransform):
    """Units -> the Result of the run that commits them, with an index and its ids counted."""

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        settled = (units,) | "Settle" >> Settle(self._run)
        record = settled | "Index" >> BuildIndex(self._run, REQUEST)
        return (settled, record) | "Commit" >> Commit(self._run, ids=True)


def test_the_lease_is_renewed_while_units_are_settled_indexed_and_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = Nights(tmp_path / "store")
    damaged = nights.commit(FILES, REQUEST)["segments"][0]["locator"]
    # so that the index is to be updated first, and then is trained anew
    (nights.root / damaged).write_bytes(b"PAR1")
    run, units = nights.begin(CHANGED)
    run, silence = replace(run, leased=True), Silence(monkeypatch)
    lease.acquire(
        run.root, lease.Lease.from_this_process(run.id, "FlinkRunner", "job", in_process=False)
    )
    began = silence.now
    (result,) = eager.run(Night(run), units)
    assert result.status == "committed"
    assert silence.now - began > 2 * lease.STALE_SECONDS
    assert silence.worst < lease.STALE_SECONDS
