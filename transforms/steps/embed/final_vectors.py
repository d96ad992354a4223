"""Final vectors from pooled ones, without texts and without a model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.calibration.moved import FittedMoments
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.shards.unit_vectors import Vectors


@dataclass(frozen=True)
class Finisher:
    """The last stage of a space, from pooled to final vectors.

    Its calibration is read when it is first needed.
    """

    space: Space
    read_calibration: Callable[[], Calibration | None]

    @cached_property
    def _calibration(self) -> Calibration | None:
        return self.read_calibration()

    @cached_property
    def _fitted(self) -> FittedMoments | None:
        return FittedMoments.from_info(self._calibration.info) if self._calibration else None

    def moved(self, vectors: Vectors) -> tuple[float, ...]:
        """Return the sums that compare final vectors with those of the calibration's fit.

        They are empty without such a fit.
        """
        if vectors.pooled is None or not self.space.calibration or self._fitted is None:
            return ()
        return self._fitted.sums(vectors.pooled)

    def finish(self, vectors: Vectors) -> tuple[np.ndarray, Vectors]:
        """Return the rows that get a final vector, int64 [n], and their vectors.

        The pooled vectors are in `embedding`. The vectors of the other rows become zero or are not
        finite.
        """
        import torch

        from sentence_beam.transforms.encoder import finish_vectors
        from sentence_beam.transforms.pooling import Status

        # torch warns about arrays that it cannot write to
        pooled = np.require(vectors.embedding, requirements="W")
        done = finish_vectors.finish(torch.from_numpy(pooled), self.space, self._calibration)
        kept = None if done.pooled is None else done.pooled.numpy()
        good = np.flatnonzero(done.status.numpy() == int(Status.OK))
        return good, replace(vectors, embedding=done.vectors.numpy(), pooled=kept).take(good)
