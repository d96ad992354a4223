"""The way of a unit through GPUs, on devices that are none: what is waited for, copied and queued."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.corpora import sentences
from helpers.stub_device import Counts, StubTensor, stub_gpu
from helpers.tiny_models import save_tiny_model
from test_varlen import literal_attention

from transforms.encoder import Encoder, batch_size, forward
from transforms.encoder import encoder as encoders

TEXTS = sentences(20)


def attention(*args: Any, **kwargs: Any) -> Any:
    """The kernel, which is one operator on a GPU."""
    first = args[0]
    held = [each.held if isinstance(each, StubTensor) else each for each in args]
    made = literal_attention(*held, **kwargs)
    if not isinstance(first, StubTensor):
        return made
    made = made if isinstance(made, tuple) else (made,)
    wrapped = tuple(StubTensor(each, first.device, first.counts) for each in made)
    return wrapped if len(wrapped) > 1 else wrapped[0]


def on_gpus(model: str, gpus: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Encoder:
    """An encoder on so many GPUs that are none."""
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(encoders, "resolve_devices", lambda _: [torch.device("cuda", n) for n in range(gpus)])
        patch.setattr(forward, "kernel_for", lambda _: attention)
        patch.setattr(batch_size, "free_memory", lambda _: 10**10)
        patch.setattr(batch_size, "TOKENS_PER_ALIKE_BATCH", {"cuda": 64})
        return Encoder.load(model, dtype="float32", device="cuda", **options)


@pytest.mark.parametrize(("pooler", "deterministic"), [("mean", False), ("static+ditto:1-1", False), ("mean", True)])
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


def _embedded(encoder: Encoder, counts: Counts) -> np.ndarray:
    unit = encoder.plan(encoder.tokenize(TEXTS))
    counts.waits.clear()
    counts.unordered.clear()
    counts.copies_out = 0
    found = encoder.embed(encoder.tokenize(TEXTS))
    assert counts.waits == []
    assert counts.unordered == []
    assert counts.copies_out == 2 * len(unit.batches), "vectors and status of each batch, and nothing else"
    return found.vectors
