"""Moments of a store's pooled vectors: shards are read where the work is, and accumulators travel."""

from collections.abc import Iterable
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from transforms.calibration.moments import Moments
from transforms.errors import SentenceBeamError
from transforms.store.pooled import read_pooled
from transforms.store.records import Problem


@dataclass(frozen=True)
class Gathered:
    """Moments of a part of the rows (None: of none yet), and what went wrong."""

    moments: Moments | None = None
    problem: Problem | None = None

    def merge(self, other: "Gathered") -> "Gathered":
        """Both together; of two problems the one whose message sorts first."""
        problems = [found.problem for found in (self, other) if found.problem is not None]
        if problems:
            return Gathered(problem=min(problems, key=lambda problem: problem.message))
        known = [found.moments for found in (self, other) if found.moments is not None]
        return Gathered(known[0].merge(known[1]) if len(known) == 2 else next(iter(known), None))


class GatherMoments(beam.CombineFn):
    """Paths of shards -> the Moments of all their pooled vectors, or the Problem that stands in the way.

    Exact for any number of shards: what order and split change is rounding (about 1e-15 relative).
    """

    def __init__(self, normalized: bool):
        self._normalized = normalized

    def create_accumulator(self) -> Gathered:
        """Of no shard."""
        return Gathered()

    def add_input(self, total: Gathered, shards: tuple[str, ...]) -> Gathered:
        """With these shards' rows."""
        for path in shards if total.problem is None else ():
            total = total.merge(gather(path, self._normalized))
        return total

    def merge_accumulators(self, accumulators: Iterable[Gathered]) -> Gathered:
        """All together."""
        total = Gathered()
        for part in accumulators:
            total = total.merge(part)
        return total

    def extract_output(self, total: Gathered) -> Gathered:
        """What was gathered."""
        return total


def gather(path: str, normalized: bool) -> Gathered:
    """Moments of one shard; a Problem naming shard and row where a vector is not finite."""
    moments, start = None, 0
    try:
        for rows, _ in read_pooled(path, normalized):
            with np.errstate(invalid="ignore"):
                part = Moments.of(rows)
            if not np.isfinite(part.mean).all():
                return Gathered(problem=not_finite(path, start, rows))
            moments = part if moments is None else moments.merge(part)
            start += len(rows)
    except SentenceBeamError as error:
        return Gathered(problem=Problem.of(error))
    return Gathered(moments)


def not_finite(path: str, start: int, rows: np.ndarray) -> Problem:
    """The problem that some of these rows are; `start` is the number of the first."""
    row = start + int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
    return Problem(
        f"{path}: the vector of row {row} is not finite; remove the shard and run embed, which makes it anew"
    )
