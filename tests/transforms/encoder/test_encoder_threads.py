"""One encoder, many threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from helpers.tiny_models import TEXTS

from sentence_beam.transforms.encoder import Encoder


def test_threads_that_share_an_encoder_do_not_disturb_each_other(tiny: dict[str, Path]) -> None:
    encoder = Encoder.load(str(tiny["bert"]), dtype="float32")
    batches = [[f"{text} {TEXTS[i % len(TEXTS)]}" for text in TEXTS] * 5 for i in range(24)]
    expected = [encoder.encode(batch) for batch in batches]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(encoder.encode, batches))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
