"""The way of a unit through GPUs, on devices that are none: what is waited for, copied and
queued.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.corpora import sentences
from helpers.families import save_family
from helpers.stub_device import Counts, StubTensor, stub_gpu
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.encoder import Encoder, choose_runner, replica
from sentence_beam.transforms.encoder import encoder as encoders
from sentence_beam.transforms.encoder.one_row import OneRowRunner
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.texts_attention import attend_text_by_text

TEXTS = sentences(20)


def attention(*args: Any, **kwargs: Any) -> Any:
    """The kernel, which is one operator on a GPU."""
    first = args[0]
    held = [each.held if isinstance(each, StubTensor) else each for each in args]
    made = attend_text_by_text(*held, **kwargs)
    if not isinstance(first, StubTensor):
        return made
    made = made if isinstance(made, tuple) else (made,)
    wrapped = tuple(StubTensor(each, first.device, first.counts) for each in made)
    return wrapped if len(wrapped) > 1 else wrapped[0]


def on_gpus(model: str, gpus: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Encoder:
    """An encoder on so many GPUs that are none."""
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(
            encoders, "resolve_devices", lambda _: [torch.device("cuda", n) for n in range(gpus)]
        )
        patch.setattr(choose_runner, "choose_kernel", lambda _: attention)
        patch.setattr(replica, "measure_free_memory", lambda _: 10**10)
        patch.setattr(replica, "TOKENS_PER_ALIKE_BATCH", {"cuda": 64})
        return Encoder.load(model, dtype="float32", device="cuda", **options)


@pytest.mark.parametrize(
    ("pooler", "deterministic"), [("mean", False), ("static+ditto:1-1", False), ("mean", True)]
)
def test_nothing_waits_inside_a_batch(
    pooler: str, deterministic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    expected = Encoder.load(model, dtype="float32", device="cpu", pooler=pooler).encode(TEXTS)
    size = {} if deterministic else {"tokens_per_batch": 64}
    with stub_gpu(monkeypatch) as counts:
        encoder = on_gpus(model, 2, monkeypatch, pooler=pooler, deterministic=deterministic, **size)
        found = _embedded(encoder, counts)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_nothing_waits_where_pieces_are_pooled_from_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, text = str(save_tiny_model("bert", tmp_path / "bert")), " ".join(TEXTS)[:400]
    texts, spans = (
        [text, text[100:], "one"],
        [[(0, 90), (90, 200), (200, 300)], [(0, 100), (120, 300)], [(0, 3)]],
    )
    here = Encoder.load(model, dtype="float32", device="cpu")
    expected = here.embed_pieces(here.windows(texts, spans, window=40)).vectors
    with stub_gpu(monkeypatch) as counts:
        encoder = on_gpus(model, 2, monkeypatch, tokens_per_batch=64)
        unit = encoder.plan_pieces(encoder.windows(texts, spans, window=40))
        counts.waits.clear()
        found = encoder.finish(encoder.start_pieces(unit))
        assert counts.waits == []
        assert counts.unordered == []
    np.testing.assert_allclose(found.vectors, expected, atol=2e-5)


def _embedded(encoder: Encoder, counts: Counts) -> np.ndarray:
    unit = encoder.plan(encoder.tokenize(TEXTS))
    counts.waits.clear()
    counts.unordered.clear()
    counts.copies_out = 0
    found = encoder.embed(encoder.tokenize(TEXTS))
    assert counts.waits == []
    assert counts.unordered == []
    assert counts.copies_out == 2 * len(unit.batches), (
        "vectors and status of each batch, and nothing else"
    )
    return found.vectors


@pytest.mark.parametrize(("family", "pooler"), [("qwen3", "mean"), ("modernbert", "ditto:1-1")])
def test_nothing_waits_where_texts_lie_in_one_row(
    family: str, pooler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(tmp_path / family)
    save_family(family, tmp_path / family)
    expected = Encoder.load(model, pooler=pooler, dtype="float32", device="cpu").encode(TEXTS)
    with stub_gpu(monkeypatch) as counts:
        encoder = on_gpus(model, 1, monkeypatch, pooler=pooler, tokens_per_batch=64)
        assert isinstance(encoder.replicas[0].forward.runner, OneRowRunner), encoder.replicas[
            0
        ].forward.objection
        found = _embedded(encoder, counts)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("family", ["distilbert", "qwen3"])
def test_a_padded_pass_does_not_ask_the_device_whether_there_is_padding(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(tmp_path / family)
    save_family(family, tmp_path / family)
    expected = Encoder.load(model, pooler="mean", dtype="float32", device="cpu").encode(TEXTS)
    with stub_gpu(monkeypatch) as counts:
        monkeypatch.setattr(choose_runner, "make_unpadded_runner", lambda *_: (None, ""))
        encoder = on_gpus(model, 1, monkeypatch, pooler="mean", tokens_per_batch=64)
        assert encoder.replicas[0].forward.together is BatchSharing.PADDED
        found = _embedded(encoder, counts)
    np.testing.assert_allclose(found, expected, atol=2e-5)
