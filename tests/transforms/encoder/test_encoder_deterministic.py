"""The same vector to the bit, and how far it may be off without that."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import FAMILIES, TEXTS

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.batches import plan_alike

RNG = np.random.default_rng(7)
WORDS = " ".join(TEXTS).split()
MANY = [" ".join(RNG.choice(WORDS, size=RNG.integers(1, 14))) for _ in range(150)]


def _check_bits(encoder: Encoder, texts: list[str]) -> None:
    together = encoder.encode(texts)
    order = RNG.permutation(len(texts))
    np.testing.assert_array_equal(encoder.encode([texts[i] for i in order]), together[order])
    some = order[: len(texts) // 3]
    np.testing.assert_array_equal(encoder.encode([texts[i] for i in some]), together[some])
    for i in order[:10]:
        np.testing.assert_array_equal(encoder.encode([texts[i]])[0], together[i])


# in bfloat16 the others run with the slow tests
IN_16_BITS = ("bert", "t5", "xlnet")


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *((family, "float32") for family in FAMILIES),
        *((family, "bfloat16") for family in IN_16_BITS),
        *(
            pytest.param(family, "bfloat16", marks=pytest.mark.slow)
            for family in FAMILIES
            if family not in IN_16_BITS
        ),
    ],
)
def test_bits_do_not_depend_on_neighbours(tiny, family, dtype):
    if (family, dtype) == ("xlnet", "bfloat16"):
        with pytest.raises(OptionError, match="xlnet computes in float32 alone"):
            Encoder.load(str(tiny[family]), dtype=dtype, device="cpu")
        return
    _check_bits(
        Encoder.load(str(tiny[family]), dtype=dtype, device="cpu", deterministic=True), MANY
    )


@pytest.mark.parametrize(
    "pooler", ["max", "ditto:1-2", "sbert-wk:start=0,window=1", "first-last+cls", "static"]
)
@pytest.mark.parametrize("family", ["bert", pytest.param("mpnet", marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_neighbours_for_any_pooler(tiny, family, pooler):
    _check_bits(
        Encoder.load(str(tiny[family]), pooler=pooler, dtype="float32", deterministic=True), MANY
    )


@pytest.mark.parametrize("family", ["bert", pytest.param("distilbert", marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_threads(tiny, family):
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(
            Encoder.load(str(tiny[family]), dtype="float32", deterministic=True).encode(MANY)
        )
    torch.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_minilm_to_the_bit_and_within_its_bound(dtype):
    texts = [" ".join(RNG.choice(WORDS, size=RNG.integers(1, 40))) for _ in range(24)]
    _check_bits(Encoder.load("minilm", dtype=dtype, device="cpu", deterministic=True), texts)
    encoder = Encoder.load("minilm", dtype=dtype, device="cpu")
    together, alone = (
        encoder.encode(texts),
        np.concatenate([encoder.encode([text]) for text in texts]),
    )
    if dtype == "float32":
        assert np.abs(together - alone).max() <= 2e-5 * np.abs(together).max()
    else:
        assert (together * alone).sum(1).min() >= 0.9999


def test_batches_of_one_length_are_of_one_size(tiny):
    encoder = Encoder.load(str(tiny["bert"]), dtype="float32", deterministic=True)
    tokenized = encoder.tokenize(MANY)
    shapes: dict[int, set[int]] = {}
    for batch in plan_alike(tokenized, 64):
        assert set(batch.lengths) == {batch.width}
        shapes.setdefault(batch.width, set()).add(len(batch.rows))
    assert all(sizes == {max(1, 64 // length)} for length, sizes in shapes.items())
    stats = encoder.embed(tokenized).stats
    assert stats.real == tokenized.lengths.sum()
    assert stats.padded > stats.real


def test_a_batch_size_has_no_place_beside_it(tiny):
    with pytest.raises(OptionError, match="tokens per batch 99"):
        Encoder.load(str(tiny["bert"]), dtype="float32", deterministic=True, tokens_per_batch=99)
