"""Named arrays as bytes (npz, without pickle)."""

from io import BytesIO

import numpy as np


def pack(**arrays: np.ndarray) -> bytes:
    """Return named arrays as bytes."""
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """Return the named arrays that `pack` wrote."""
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
