"""Keep predictions in a folder, so that a later evaluation does not compute them again."""

from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sentence_beam.transforms import storage
from sentence_beam.transforms.evaluation.task import Predictions
from sentence_beam.transforms.space import canonical_json, sha256_text

FORMAT = "sentence-beam scores 3"  # changes with the predictions of any task


@dataclass(frozen=True)
class Cache:
    """A folder with a file for each method and task; without a folder nothing is kept."""

    folder: str | None

    def read(self, key: str) -> Predictions | None:
        """Return the predictions under a key, or None if the file is missing or damaged."""
        if self.folder is None:
            return None
        path = self._join_path(self.folder, key)
        file = storage.storage_of(path).read_versioned(path)
        if file is None:
            return None
        content, _ = file
        try:
            return load(content)
        except SafetensorError:
            return None

    def write(self, key: str, predictions: Predictions) -> None:
        """Write predictions under a key."""
        if self.folder is not None:
            arrays = {name: np.ascontiguousarray(array) for name, array in predictions.items()}
            storage.overwrite(self._join_path(self.folder, key), save(arrays))

    @staticmethod
    def _join_path(folder: str, key: str) -> str:
        return storage.join(storage.absolute(folder), f"{key}.safetensors")


def make_key(data: str, space: str, query_space: str, calibration: str | None, dim: int) -> str:
    """Return the key of a method on a task.

    It is a hash over the digest of the task's data, the spaces of texts and queries, the digest of
    a calibration and the width.
    """
    return sha256_text(canonical_json([FORMAT, data, space, query_space, calibration, dim]))
