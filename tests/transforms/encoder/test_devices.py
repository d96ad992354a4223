"""Batches side by side, one a core.

Covers transforms/encoder/lanes.py.
"""

import threading
from functools import partial

import numpy as np
import pytest
import torch
from helpers.tiny_models import TEXTS

from sentence_beam.transforms.encoder import Encoder, tokenize
from sentence_beam.transforms.encoder import encoder as encoders
from sentence_beam.transforms.encoder.replica import LEAST_TOKENS_PER_BATCH, TOKENS_PER_PACKED_BATCH


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "pooler",
    [
        "mean",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("ditto:1-2", "sbert-wk:start=0,window=1", "max")
        ),
    ],
)
def test_vectors_do_not_depend_on_the_number_of_cores(tiny, pooler, two_threads):
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        encoder = Encoder.load(
            str(tiny["bert"]), pooler=pooler, dtype="float32", device="cpu", tokens_per_batch=64
        )
        found.append(encoder.encode(texts))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(("cores", "texts"), [(1, 40), (3, 400), (48, 400)])
def test_there_is_work_for_every_core_and_no_batch_is_larger_than_its_budget(
    tiny, cores, texts, two_threads
):
    torch.set_num_threads(cores)
    encoder = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu")
    tokenized = encoder.tokenize([TEXTS[number % len(TEXTS)] for number in range(texts)])
    sizes = [len(batch.ids) for batch in encoder.plan(tokenized).batches]
    assert sum(sizes) == len(tokenized.ids)
    assert max(sizes) <= TOKENS_PER_PACKED_BATCH
    assert len(sizes) >= min(4 * cores, len(tokenized.ids) // LEAST_TOKENS_PER_BATCH)


def test_deterministic_batches_do_not_depend_on_the_number_of_cores(tiny, two_threads):
    found = []
    for cores in (1, 48):
        torch.set_num_threads(cores)
        encoder = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu", deterministic=True)
        found.append(
            [len(batch.rows) for batch in encoder.plan(encoder.tokenize(TEXTS * 50)).batches]
        )
    assert found[0] == found[1]


def test_a_unit_is_handed_over_while_the_one_before_is_computed(tiny, monkeypatch, two_threads):
    """`start` waits for no device, whether its batches take cores or devices; results are those of
    one after the other.
    """
    for devices in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(
                encoders, "resolve_devices", lambda _, n=devices: [torch.device("cpu")] * n
            )
            encoder = Encoder.load(
                str(tiny["bert"]), dtype="float32", device="cpu", tokens_per_batch=32
            )
        texts = [[f"{text} {number}" for text in TEXTS] for number in range(3)]
        expected = [encoder.encode(some) for some in texts]
        gate = threading.Event()

        def held(batch, run, gate=gate):
            assert gate.wait(60)
            return run(batch)

        for replica in encoder.replicas:
            run = replica.forward.runner.run
            monkeypatch.setattr(replica.forward.runner, "run", partial(held, run=run))
        units = [encoder.plan(encoder.tokenize(some)) for some in texts]
        assert all(len(unit.batches) > 1 for unit in units)
        passing = [encoder.start(unit) for unit in units]
        assert not gate.is_set()
        gate.set()
        for one, vectors in zip(passing, expected, strict=True):
            found = encoder.finish(one)
            np.testing.assert_array_equal(found.vectors, vectors)
            assert found.seconds > 0


def test_documents_in_windows_are_handed_over_while_those_before_are_computed(
    tiny, monkeypatch, two_threads
):
    """`start_pieces` waits for no device; what devices share has the vectors that one has."""
    spans = [[(0, 20), (20, 60), (60, 90)]] * 9
    for devices in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(
                encoders, "resolve_devices", lambda _, n=devices: [torch.device("cpu")] * n
            )
            patch.setattr(encoders, "WINDOW_BATCHES", {"cpu": 2})
            encoder = Encoder.load(
                str(tiny["bert"]), dtype="float32", device="cpu", tokens_per_batch=32
            )
            documents = [
                [" ".join(TEXTS)[number + n : number + n + 90] for n in range(9)]
                for number in range(3)
            ]
            windows = [
                encoder.windows([*some, TEXTS[0]], [*spans, [(0, len(TEXTS[0]))]])
                for some in documents
            ]
            units = [encoder.plan_pieces(each) for each in windows]
        assert len(units[0].jobs) == (1 if devices == 1 else 3)
        assert len(units[0].whole.batches) == 1
        expected = [encoder.embed_pieces(each).vectors for each in windows]
        if devices == 1:
            of_one = expected
        gate = threading.Event()

        def held(batch, run, gate=gate):
            assert gate.wait(60)
            return run(batch)

        for replica in encoder.replicas:
            run = replica.forward.runner.run
            monkeypatch.setattr(replica.forward.runner, "run", partial(held, run=run))
        passing = [encoder.start_pieces(unit) for unit in units]
        assert not gate.is_set()
        gate.set()
        for one, vectors, alike in zip(passing, expected, of_one, strict=True):
            found = encoder.finish(one)
            np.testing.assert_array_equal(found.vectors, vectors)
            np.testing.assert_allclose(found.vectors, alike, atol=2e-5)
            assert found.seconds > 0


MANY_SHORT = [f"{text} {number}" for number in range(9) for text in TEXTS] + ["", "dog " * 600]
FEW_LONG = ["dog " * 600, "", "cat " * 700, "the dog, " * 300]


@pytest.mark.parametrize("texts", [MANY_SHORT, FEW_LONG], ids=["many short", "few long"])
def test_texts_are_tokenized_in_parts_as_they_are_at_once(tiny, monkeypatch, texts):
    encoder = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu")
    whole, threads = encoder.tokenize(texts), set()
    part = encoder.text_tokenizer.tokenize_part
    monkeypatch.setattr(tokenize, "CHARACTERS_AT_ONCE", 300)
    monkeypatch.setattr(
        encoder.text_tokenizer,
        "tokenize_part",
        lambda some: threads.add(threading.get_ident()) or part(some),
    )
    found = encoder.tokenize(texts)
    for name, values in vars(whole).items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)
        assert values is None or getattr(found, name).dtype == values.dtype
    assert threads
    assert threading.get_ident() not in threads
