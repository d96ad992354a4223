"""Predictions kept in a folder, so that what was computed once for a space and some data is not
computed again.
"""

from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from transforms import storage
from transforms.evaluation.task import Predictions
from transforms.space import canonical_json, sha256_text

FORMAT = "sentence-beam scores 3"  # another number where what a task predicts has changed


@dataclass(frozen=True)
class Cache:
    """A folder with a file for each method and task; without a folder nothing is kept."""

    folder: str | None

    def read(self, key: str) -> Predictions | None:
        """What was kept under a key; None where nothing was, or where the file is damaged."""
        if self.folder is None:
            return None
        path = self._path(self.folder, key)
        found = storage.storage_of(path).read_versioned(path)
        if found is None:
            return None
        try:
            return load(found[0])
        except SafetensorError:
            return None

    def write(self, key: str, predictions: Predictions) -> None:
        """Keep predictions under a key."""
        if self.folder is not None:
            arrays = {name: np.ascontiguousarray(array) for name, array in predictions.items()}
            storage.overwrite(self._path(self.folder, key), save(arrays))

    @staticmethod
    def _path(folder: str, key: str) -> str:
        return storage.join(storage.absolute(folder), f"{key}.safetensors")


def key_of(data: str, space: str, query_space: str, calibration: str | None, dim: int) -> str:
    """The key of a task's data (their digest), the spaces of texts and queries, a calibration's
    digest and a width.
    """
    return sha256_text(canonical_json([FORMAT, data, space, query_space, calibration, dim]))
