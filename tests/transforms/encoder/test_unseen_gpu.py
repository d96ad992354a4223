"""A machine whose GPU torch does not see, and GPUs that are slow in a dtype."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.stub_device import see_gpus, stub_gpu
from helpers.tiny_models import TEXTS, save_tiny_model

from sentence_beam.transforms.base import nvidia
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.nvidia import Driver
from sentence_beam.transforms.encoder import Encoder, choose_runner, devices, load_replica, varlen
from sentence_beam.transforms.encoder import encoder as encoders
from sentence_beam.transforms.space import Machine, Recipe
from sentence_beam.transforms.space.dtypes import describe_slow_dtype

BLIND = Driver("535.104.05", False, (0, 0), 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver whose GPU torch does not see."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    see_gpus(monkeypatch, 0)
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(nvidia, "find_driver", lambda: BLIND)


@pytest.mark.usefixtures("driver")
def test_a_run_that_needs_a_gpu_does_not_take_the_cpu_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    refusing = Machine(refuses_unseen_gpu=True)
    with pytest.raises(OptionError, match=r"535\.104\.05.*CUDA 12\.6.*LD_LIBRARY_PATH"):
        Encoder.from_recipe(Recipe(model), refusing)
    with pytest.raises(OptionError, match=r"'cuda' is not there: .*LD_LIBRARY_PATH.*device cpu"):
        devices.resolve_devices("cuda")
    assert Encoder.from_recipe(Recipe(model), Machine()).device_names == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Encoder.from_recipe(Recipe(model), refusing).device.type == "cpu", "hidden on purpose"


@pytest.mark.parametrize(
    ("engine", "accelerator", "device", "expected"),
    [
        (True, True, "auto", Machine("cuda")),
        (True, False, "auto", Machine("auto", refuses_unseen_gpu=True)),
        (False, True, "auto", Machine("auto", refuses_unseen_gpu=True)),
        (False, False, "auto", Machine("auto")),
        (True, True, "cpu", Machine("cpu")),
        (True, True, "cuda:own", Machine("cuda:own")),
    ],
)
def test_what_auto_means_for_workers(
    engine: bool, accelerator: bool, device: str, expected: Machine
) -> None:
    assert Machine(device).on_workers(engine, accelerator) == expected


@pytest.mark.parametrize(
    ("dtype", "family", "capability", "said"),
    [
        ("float32", "bert", (8, 9), "--dtype bfloat16"),
        ("float32", "bert", (7, 5), "--dtype float16"),
        ("float32", "bert", (6, 1), None),
        ("float32", "xlnet", (9, 0), None),
        ("bfloat16", "bert", (7, 5), "compute capability 7.5 emulates bfloat16; --dtype float16"),
        ("bfloat16", "bert", (8, 0), None),
        ("float16", "bert", (7, 0), None),
    ],
)
def test_a_slow_dtype_is_named_with_a_better_one(
    dtype: str, family: str, capability: tuple[int, int], said: str | None
) -> None:
    found = describe_slow_dtype(dtype, family, capability)
    assert (found is None) == (said is None)
    assert said is None or said in str(found)


def test_two_slow_gpus_are_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    with stub_gpu(monkeypatch), monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(
            encoders, "resolve_devices", lambda _: [torch.device("cuda", n) for n in range(2)]
        )
        patch.setattr(load_replica, "find_capability", lambda _: (8, 0))
        patch.setattr(varlen, "find_kernel", lambda: None)
        patch.setattr(choose_runner, "describe_missing_kernel", lambda _: "torch 2.9 has no kernel")
        with caplog.at_level(logging.WARNING):
            Encoder.load(model, dtype="float32", device="cuda", tokens_per_batch=64)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, said
    assert "texts of a batch are padded: torch 2.9 has no kernel" in said[0]
    assert "--dtype bfloat16 is several times as fast" in said[1]


def test_a_torch_without_the_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 2, dtype=torch.bfloat16)
    monkeypatch.setattr(varlen, "find_kernel", lambda: None)
    assert varlen.describe_missing_kernel(model) == "", "on a processor padding is the rule"
    with stub_gpu(monkeypatch), torch.no_grad():
        moved = model.to("cuda:0")
        assert "no kernel for texts of different lengths" in varlen.describe_missing_kernel(moved)
        assert varlen.describe_missing_kernel(moved.float()) == ""


def test_threads_that_launch_work_on_a_gpu_get_the_interpreter_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    before = sys.getswitchinterval()
    try:
        Encoder.load(model, dtype="float32", device="cpu")
        assert sys.getswitchinterval() == before
        with stub_gpu(monkeypatch), monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(encoders, "resolve_devices", lambda _: [torch.device("cuda", 0)])
            Encoder.load(model, dtype="float32", device="cuda", tokens_per_batch=64)
        assert sys.getswitchinterval() == pytest.approx(0.0002, rel=0.01)
    finally:
        sys.setswitchinterval(before)


def test_texts_come_back_in_their_order_and_one_without_a_token_is_zero(tmp_path: Path) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    encoder = Encoder.load(model, dtype="float32", device="cpu", tokens_per_batch=32)
    expected = [encoder.encode(text) for text in TEXTS]
    tokenized = encoder.tokenize(TEXTS)
    unit = encoder.plan(tokenized)
    assert len(unit.batches) > 1
    np.testing.assert_allclose(encoder.embed(tokenized).vectors, expected, atol=1e-6)
    lost = type(unit)(unit.rows + 1, unit.batches)
    found = encoder.finish(encoder.start(lost))
    np.testing.assert_allclose(found.vectors[:-1], expected, atol=1e-6)
    assert not found.vectors[-1].any()
    none: Any = encoder.finish(encoder.start(type(unit)(0, [])))
    assert none.vectors.shape == (0, encoder.dim)


def test_halved_deterministic_batches_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    encoder = Encoder.load(model, dtype="float32", device="cpu", deterministic=True)
    run = encoder.replicas[0].forward.runner.run

    def limited(batch: Any) -> Any:
        if len(batch.rows) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(batch)

    monkeypatch.setattr(encoder.replicas[0].forward.runner, "run", limited)
    halved = encoder.embed(encoder.tokenize(TEXTS * 9)).stats.oom_splits
    assert halved
    assert not caplog.text, "a processor gives the same bits"
    monkeypatch.setattr(encoder, "device", torch.device("cuda", 0))
    encoder.embed(encoder.tokenize(TEXTS * 9))
    assert "deterministic" in caplog.text
    assert "may differ in the last bits" in caplog.text
