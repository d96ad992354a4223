"""Files of vectors: those that queries are read from, and those that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.nights import space_of

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.store.shards.vector_files import read_vectors

NO_NUMBERS = "no array of numbers in .npy"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        (np.ones((2, 5), np.float32), r"expected \[rows, "),
        (np.full((2, 16), np.nan), "not finite"),
        (np.array([{"a": 1}], object), NO_NUMBERS),
        (b"not numpy", NO_NUMBERS),
        (np.array(["a"]), NO_NUMBERS),
    ],
)
def test_files_without_vectors_are_refused(tmp_path: Path, content: Any, said: str) -> None:
    path = tmp_path / "q.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(OptionError, match=f"^--query-vectors .*{said}"):
        read_vectors(str(path), "--query-vectors", space_of(16))
