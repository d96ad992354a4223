"""Batches side by side, one a core."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import TEXTS

from transforms.encoder import Encoder
from transforms.encoder.devices import Cores


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_keep_the_order_and_each_thread_has_one_core(two_threads):
    found = list(Cores().map(lambda i: (i, torch.get_num_threads(), torch.is_inference_mode_enabled()), range(50)))
    assert found == [(i, 1, True) for i in range(50)]
    assert torch.get_num_threads() == 2


def test_an_error_reaches_the_caller(two_threads):
    def fail(item: int) -> int:
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        list(Cores().map(fail, range(4)))


@pytest.mark.parametrize("pooler", ["mean", "ditto:1-2", "sbert-wk:start=0,window=1", "max"])
def test_vectors_do_not_depend_on_the_number_of_cores(tiny, pooler, two_threads):
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        encoder = Encoder.load(str(tiny["bert"]), pooler=pooler, dtype="float32", device="cpu", tokens_per_batch=64)
        found.append(encoder.encode(texts))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
