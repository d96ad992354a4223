"""How far rows have moved from those that a calibration was fitted on: sums over rows, which can be
added.

Rows are told in deviations of the fitted ones. Their mean is kept by its products with 32 fixed
directions of random signs, so that a unit's sums take as little room as its counts; the distance
that follows is good to an eighth.
"""

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from transforms.calibration.moments import Moments

DIRECTIONS = 32
# by MiniLM halves of one corpus are 0.1 apart at most, STS-B and SICK 0.2, reviews and questions
# 0.5
FAR = 0.3
FEW_ROWS = 30  # of fewer rows nothing is said
# a component that deviates less than this share of the largest deviation tells nothing
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class FittedMoments:
    """Mean and standard deviation of each component, float32 [p], of the rows that a calibration
    was fitted on.
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, moments: Moments) -> "FittedMoments":
        """Those of all rows."""
        return cls(moments.mean.astype(np.float32), moments.deviations().astype(np.float32))

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "FittedMoments | None":
        """Those that a calibration's `info` remembers; None for one that an earlier version fitted.

        Raises ValueError for others than those of the calibration's components.
        """
        told = info["fitted_on"].get("moments")
        if told is None:
            return None
        mean, deviation = (
            np.frombuffer(base64.b64decode(told[name]), "<f4") for name in ("mean", "deviation")
        )
        if not len(mean) == len(deviation) == info["input_dim"]:
            raise ValueError("its moments are of other components than the calibration")
        return cls(mean, deviation)

    def to_json(self) -> dict[str, str]:
        """Both as base64 of little-endian float32."""
        named = {"mean": self.mean, "deviation": self.deviation}
        return {
            name: base64.b64encode(values.astype("<f4").tobytes()).decode()
            for name, values in named.items()
        }

    @cached_property
    def _scaled_signs(self) -> np.ndarray:
        """What turns a centred row into its products with the directions, float32 [p, 32]; 0 for
        constant components.

        Signs are divided by the square root of the number of components, so that distances are
        means over these.
        """
        scale = self._scale
        bits = np.frombuffer(hashlib.shake_256(b"directions").digest(4 * len(scale)), np.uint8)
        signs = 1.0 - 2.0 * np.unpackbits(bits).reshape(len(scale), DIRECTIONS)
        return (signs * scale[:, None] / math.sqrt(self._alive)).astype(np.float32)

    @cached_property
    def _scale(self) -> np.ndarray:
        alive = self.deviation > _CONSTANT * self.deviation.max(initial=0)
        return np.divide(1.0, self.deviation, out=np.zeros(len(alive)), where=alive)

    @property
    def _alive(self) -> int:
        return max(int(np.count_nonzero(self._scale)), 1)

    def sums(self, pooled: np.ndarray) -> tuple[float, ...]:
        """Of pooled vectors [n, p]: n, the sum of their squared distances to the fitted mean, 32
        sums of products.
        """
        centred = pooled - self.mean
        squares = np.square(centred, dtype=np.float64).sum(axis=0) @ np.square(self._scale)
        products = (centred @ self._scaled_signs).sum(axis=0, dtype=np.float64)
        return tuple(
            float(f"{value:.6g}") for value in (len(pooled), squares / self._alive, *products)
        )


@dataclass(frozen=True)
class Moved:
    """How `rows` lie to those that a calibration was fitted on.

    `distance`: between the two means, the root of the mean over all components of the squared
    difference in fitted deviations. `reach`: the same of each row to the fitted mean, as root of
    the mean square: 1 for the fitted rows.
    """

    rows: int
    distance: float
    reach: float

    @classmethod
    def of(cls, sums: Iterable[tuple[float, ...]]) -> "Moved | None":
        """What the sums of any number of units come to; None for fewer than 30 rows."""
        n, squares, *products = added(sums) or (0.0, 0.0)
        if n < FEW_ROWS:
            return None
        apart = float(np.mean(np.square(products))) / n**2
        chance = max(squares / n - apart, 0.0) / n  # what so few rows would be apart
        return cls(
            int(n), round(math.sqrt(max(apart - chance, 0.0)), 4), round(math.sqrt(squares / n), 4)
        )

    def to_json(self) -> dict[str, float]:
        """The fields, and `far`: the distance above which the rows no longer resemble those of the
        fit.
        """
        return {**asdict(self), "far": FAR}


def added(sums: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    """The sums over all units; none where no unit has any."""
    known = [one for one in sums if len(one) == 2 + DIRECTIONS]
    return tuple(np.sum(known, axis=0).tolist()) if known else ()
