"""The GPU's forward pass, with its attention kernel replaced by a literal one, against the model's
own.

Covers transforms/encoder/choose_runner.py.
Covers transforms/encoder/forward.py.
"""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.corpora import sentences
from helpers.stub_device import see_gpus
from helpers.tiny_models import save_tiny_model
from torch import Tensor

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder, choose_runner, devices
from sentence_beam.transforms.encoder import encoder as encoders
from sentence_beam.transforms.encoder.devices import resolve_devices
from sentence_beam.transforms.encoder.varlen import VarlenRunner

TEXTS = [*sentences(40), "", "one", " ".join(sentences(6))]
POOLERS = ("mean", "cls", "first-last", "ditto:1-1", "sbert-wk:start=1,window=1", "static")


def literal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    _: Tensor,
    longest: int,
    __: int,
    return_aux: Any = None,
) -> Any:
    """What the kernel is documented to compute: [N, heads, d] text by text, and the scores'
    log-sum-exp [heads, N].
    """
    mixed, total = torch.empty_like(value), torch.empty(query.shape[1], len(query))
    assert bounds.dtype == torch.int32
    assert int(bounds[-1]) == len(query)
    assert int(bounds.diff().max()) == longest
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        scores = torch.einsum("qhd,khd->hqk", query[start:stop], key[start:stop])
        scores = scores * query.shape[2] ** -0.5
        mixed[start:stop] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[start:stop])
        total[:, start:stop] = scores.logsumexp(-1)
    return (mixed, total) if return_aux is not None else mixed


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that a GPU takes."""
    monkeypatch.setattr(choose_runner, "choose_kernel", lambda _: literal_attention)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    "family",
    ["electra", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "roberta"))],
)
def test_the_same_vectors_as_the_models_own_pass(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(save_tiny_model(family, tmp_path / family))
    for pooler in POOLERS:
        encoder = Encoder.load(model, pooler=pooler, dtype="float32")
        found = encoder.embed(encoder.tokenize(TEXTS))
        if pooler != "static":
            assert isinstance(encoder.replicas[0].forward.runner, VarlenRunner), pooler
            assert found.stats.padded == found.stats.real
        with monkeypatch.context() as patch:
            patch.setattr(choose_runner, "make_unpadded_runner", lambda *_: (None, ""))
            padded = Encoder.load(model, pooler=pooler, dtype="float32")
        np.testing.assert_allclose(found.vectors, padded.encode(TEXTS), atol=2e-5, err_msg=pooler)


def test_a_pass_that_does_not_agree_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")

    model = str(save_tiny_model("bert", tmp_path / "bert"))
    kernels = {
        "other states than alone": lambda query, key, value, *_, **__: value,
        "only supports Ampere": refuse,
    }
    for said, kernel in kernels.items():
        monkeypatch.setattr(choose_runner, "choose_kernel", lambda _, kernel=kernel: kernel)
        encoder = Encoder.load(model, pooler="mean", dtype="float32")
        assert not isinstance(encoder.replicas[0].forward.runner, VarlenRunner)
        assert said in caplog.records[-1].getMessage()


def test_two_devices_share_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    one = Encoder.load(model, dtype="float32", tokens_per_batch=32)
    monkeypatch.setattr(encoders, "resolve_devices", lambda _: [torch.device("cpu")] * 2)
    two = Encoder.load(model, dtype="float32", tokens_per_batch=32)
    assert len(two.replicas) == 2
    first, second = two.replicas
    assert first.forward is not second.forward
    seen: list[tuple[str, int]] = []
    together = threading.Barrier(2, timeout=30)  # passed only where both work at the same time
    for name, replica in (("first", first), ("second", second)):
        run = replica.forward.runner.run

        def noted(batch: Any, run: Any = run, name: str = name) -> Any:
            if name not in {other for other, _ in seen}:
                seen.append((name, threading.get_ident()))
                together.wait()
            seen.append((name, threading.get_ident()))
            return run(batch)

        monkeypatch.setattr(replica.forward.runner, "run", noted)
    progress: list[int] = []
    found = two.embed(two.tokenize(TEXTS), progress=lambda rows, _: progress.append(rows))
    np.testing.assert_allclose(found.vectors, one.encode(TEXTS), atol=2e-5)
    assert sum(progress) == len(TEXTS)
    assert {name for name, _ in seen} == {"first", "second"}
    assert len({thread for _, thread in seen}) == 2
    assert len(set(seen)) == 2, "a device has a thread of its own"


def test_out_of_memory_on_one_of_two_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    one = Encoder.load(model, dtype="float32", tokens_per_batch=64)
    monkeypatch.setattr(encoders, "resolve_devices", lambda _: [torch.device("cpu")] * 2)
    two = Encoder.load(model, dtype="float32", tokens_per_batch=64)
    assert len(two.replicas) == 2
    for replica in two.replicas:
        run = replica.forward.runner.run

        def limited(batch: Any, run: Any = run) -> Any:
            if len(batch.rows) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return run(batch)

        monkeypatch.setattr(replica.forward.runner, "run", limited)
    found = two.embed(two.tokenize(TEXTS))
    assert found.stats.oom_splits > 0
    np.testing.assert_allclose(found.vectors, one.encode(TEXTS), atol=2e-5)


def test_which_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(monkeypatch, 3)
    monkeypatch.setattr(devices, "try_growing", lambda _: None)
    assert [str(device) for device in resolve_devices("auto")] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [str(device) for device in resolve_devices("cuda")] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [str(device) for device in resolve_devices("cuda:1")] == ["cuda:1"]
    assert [str(device) for device in resolve_devices("cpu")] == ["cpu"]
    with pytest.raises(OptionError, match="cuda:7"):
        resolve_devices("cuda:7")
