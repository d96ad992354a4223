"""What a classifier or regressor sees of a pair of vectors."""

import numpy as np


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """|u-v| and u*v side by side, float32 [n, 2 d]; the same for (u, v) and (v, u)."""
    return np.concatenate([np.abs(first - second), first * second], axis=1, dtype=np.float32)
