"""Predictions of methods: vectors that are not finite are refused by their text."""

import numpy as np
import pytest

from transforms.base.errors import SentenceBeamError
from transforms.evaluation.encode_many import Encoded
from transforms.evaluation.predict import check_finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_named_by_its_text(value: float) -> None:
    rows = np.ones((4, 3), np.float32)
    texts = {f"text {number}": number for number in range(4)}
    check_finite(Encoded("mean", rows, 1.0), texts)
    rows[2, 1] = rows[3, 0] = value
    with pytest.raises(SentenceBeamError, match=r"pooler mean: .*text 2.* \(2 of 4 are not\)"):
        check_finite(Encoded("mean", rows, 1.0), texts)
