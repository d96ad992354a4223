"""Batches side by side, one a core."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import TEXTS

from transforms.encoder import Encoder
from transforms.encoder.batch_size import LEAST_TOKENS_PER_BATCH, TOKENS_PER_PACKED_BATCH


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


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


@pytest.mark.parametrize(("cores", "texts"), [(1, 40), (3, 400), (48, 400)])
def test_there_is_work_for_every_core_and_no_batch_is_larger_than_its_budget(tiny, cores, texts, two_threads):
    torch.set_num_threads(cores)
    encoder = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu")
    tokenized = encoder.tokenize([TEXTS[number % len(TEXTS)] for number in range(texts)])
    sizes = [len(batch.ids) for batch in encoder._plan(tokenized)]
    assert sum(sizes) == len(tokenized.ids)
    assert max(sizes) <= TOKENS_PER_PACKED_BATCH
    assert len(sizes) >= min(4 * cores, len(tokenized.ids) // LEAST_TOKENS_PER_BATCH)


def test_deterministic_batches_do_not_depend_on_the_number_of_cores(tiny, two_threads):
    found = []
    for cores in (1, 48):
        torch.set_num_threads(cores)
        encoder = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu", deterministic=True)
        found.append([len(batch.rows) for batch in encoder._plan(encoder.tokenize(TEXTS * 50))])
    assert found[0] == found[1]
