"""Where an encoder's batches run: on the cores of a CPU, or on the devices of its replicas."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from itertools import chain
from time import perf_counter
from typing import ParamSpec, TypeVar

import torch

from sentence_beam.transforms.base.cores import Cores
from sentence_beam.transforms.encoder.batches import Batch, UnitBatches
from sentence_beam.transforms.encoder.devices import Devices, PassedBatch, Passing, pass_through
from sentence_beam.transforms.encoder.late import PiecesUnit
from sentence_beam.transforms.encoder.replica import PooledBatch, Replica, States

Progress = Callable[[int, int], None]
Given = ParamSpec("Given")
Made = TypeVar("Made")


class Lanes:
    """The replicas of a model at work; several threads may start units.

    `deterministic`: a CPU runs every batch on one core.
    """

    def __init__(self, replicas: Sequence[Replica], deterministic: bool) -> None:
        self._replicas = replicas
        self._deterministic = deterministic
        self.on_cores = len(replicas) == 1 and replicas[0].device.type == "cpu"
        self._cores = Cores()
        self._devices = None if self.on_cores else Devices(replicas)
        # on a CPU: documents in windows, one unit after the other
        self._late = ThreadPoolExecutor(1, "late")
        self._one_at_a_time = threading.RLock()

    def start(
        self,
        unit: UnitBatches,
        progress: Progress | None = None,
        cancelled: threading.Event | None = None,
    ) -> Passing:
        """Queue the batches; devices take them after their earlier work.

        A single batch on a CPU runs at once, on all cores. `progress(rows, real tokens)` is called
        after every batch, by any thread. Once `cancelled` is set, no further batch is begun, and
        what `passed` would yield raises CancelledError.
        """
        begun = perf_counter()

        def report(batch: Batch) -> None:
            if progress is not None:
                progress(len(batch.rows) - batch.fill, batch.stats(False).real)

        if self._devices is not None:
            passed = self._devices.map(
                _make_cancellable(cancelled, Replica.__call__), unit.batches, report
            )
            return Passing(unit.rows, passed, len(self._replicas), begun)
        work = _make_cancellable(cancelled, partial(_run_batch, self._replicas[0], report))
        if self._uses_many_cores(unit.batches):
            passed = self._cores.map(work, unit.batches)
            return Passing(unit.rows, passed, torch.get_num_threads(), begun)
        with self._one_at_a_time, torch.inference_mode():
            return Passing(unit.rows, iter([work(batch) for batch in unit.batches]), 1, begun)

    def start_pieces(self, unit: PiecesUnit, cancelled: threading.Event | None = None) -> Passing:
        """Queue the pieces behind the devices' earlier work; waits for nothing.

        `cancelled` as for `start`.
        """
        begun = perf_counter()
        if self._devices is None:
            future = self._late.submit(self._pass_pieces, unit, cancelled)
            return Passing(unit.rows, (each.result() for each in (future,)), 1, begun)
        whole = self.start(unit.whole, cancelled=cancelled).passed
        others = self._devices.map(_make_cancellable(cancelled, Replica.pieces), unit.jobs)
        return Passing(unit.rows, chain(whole, others), len(self._replicas), begun)

    def _pass_pieces(self, unit: PiecesUnit, cancelled: threading.Event | None) -> PassedBatch:
        """Pass pieces through a CPU, several windows in parallel, one a core."""

        def map_batches(work: Callable[[Batch], States], batches: list[Batch]) -> Iterator[States]:
            work = _make_cancellable(cancelled, work)
            if self._uses_many_cores(batches):
                return self._cores.map(work, batches)
            return map(work, batches)

        def work(unit: PiecesUnit) -> list[PooledBatch]:
            parts: list[PooledBatch] = []
            for batch in self.start(unit.whole, cancelled=cancelled).passed:
                parts += batch.parts
            for job in unit.jobs:
                parts += self._replicas[0].pieces(job, map_batches)
            return parts

        with self._one_at_a_time, torch.inference_mode():
            return pass_through(work, unit)

    def _uses_many_cores(self, batches: Sequence[Batch]) -> bool:
        return self._deterministic or len(batches) > 1


def _make_cancellable(
    cancelled: threading.Event | None, work: Callable[Given, Made]
) -> Callable[Given, Made]:
    """Return the work, which raises CancelledError in place of beginning once it is cancelled."""

    def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if cancelled is not None and cancelled.is_set():
            raise CancelledError
        return work(*args, **kwargs)

    return run


def _run_batch(replica: Replica, report: Callable[[Batch], None], batch: Batch) -> PassedBatch:
    passed = pass_through(replica, batch)
    report(batch)
    return passed
