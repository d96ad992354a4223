"""Measure how far rows have moved from those of a calibration's fit, by sums that can be added.

Rows are measured in standard deviations of the fit. Their mean is kept as its products with 32
fixed directions of random signs, so that a unit's sums are small; the distance that follows has an
error of up to an eighth.
"""

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sentence_beam.transforms.calibration.moments import Moments

DIRECTIONS = 32
# with MiniLM halves of one corpus are 0.1 apart at most, STS-B and SICK 0.2, reviews and
# questions 0.5
FAR = 0.3
FEW_ROWS = 30  # fewer rows are not compared
_CONSTANT = 1e-6  # a component with less than this share of the largest deviation is ignored


@dataclass(frozen=True, eq=False)
class FittedMoments:
    """Mean and standard deviation of each component, float32 [p], of the rows of a fit."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def from_moments(cls, moments: Moments) -> "FittedMoments":
        """Return the mean and deviation of all rows."""
        return cls(moments.mean.astype(np.float32), moments.deviations().astype(np.float32))

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "FittedMoments":
        """Read the moments in a calibration's `info`.

        Raises ValueError if they have another width than the calibration.
        """
        moments = info["fitted_on"]["moments"]
        mean = np.frombuffer(base64.b64decode(moments["mean"]), "<f4")
        deviation = np.frombuffer(base64.b64decode(moments["deviation"]), "<f4")
        if not len(mean) == len(deviation) == info["input_dim"]:
            raise ValueError("its moments are of other components than the calibration")
        return cls(mean, deviation)

    def to_json(self) -> dict[str, str]:
        """Return both as base64 of little-endian float32."""
        return {"mean": _as_base64(self.mean), "deviation": _as_base64(self.deviation)}

    @cached_property
    def _scaled_signs(self) -> np.ndarray:
        """Matrix float32 [p, 32] from a centred row to its products with the directions.

        It is 0 for constant components. Signs are divided by the square root of the number of the
        others, so that distances are means over these.
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
        """Return the sums of pooled vectors [n, p].

        They are n, the sum of the squared distances to the fitted mean, and 32 sums of products.
        """
        centred = pooled - self.mean
        squares = np.square(centred, dtype=np.float64).sum(axis=0) @ np.square(self._scale)
        products = (centred @ self._scaled_signs).sum(axis=0, dtype=np.float64)
        sums = (len(pooled), squares / self._alive, *products)
        return tuple(float(f"{value:.6g}") for value in sums)


def _as_base64(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


@dataclass(frozen=True)
class Moved:
    """The shift of `rows` from those of a calibration's fit, in standard deviations of the fit.

    `distance`: RMS over all components of the difference of the two means. `reach`: RMS distance
    of a row to the mean of the fit, 1 for the rows of the fit.
    """

    rows: int
    distance: float
    reach: float

    @classmethod
    def from_sums(cls, sums: Iterable[tuple[float, ...]]) -> "Moved | None":
        """Compute the shift from the sums of units; None for fewer than 30 rows."""
        n, squares, *products = add_sums(sums) or (0.0, 0.0)
        if n < FEW_ROWS:
            return None
        apart = float(np.mean(np.square(products))) / n**2
        chance = max(squares / n - apart, 0.0) / n  # expected for so few rows
        distance = math.sqrt(max(apart - chance, 0.0))
        return cls(int(n), round(distance, 4), round(math.sqrt(squares / n), 4))

    def to_json(self) -> dict[str, float]:
        """Return the fields, and `far`: the distance above which rows differ from the fit's."""
        return {**asdict(self), "far": FAR}


def add_sums(sums: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    """Add the sums of units; empty if no unit has any."""
    units = [unit for unit in sums if len(unit) == 2 + DIRECTIONS]
    return tuple(np.sum(units, axis=0).tolist()) if units else ()
