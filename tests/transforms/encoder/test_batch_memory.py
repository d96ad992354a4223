"""Batches that are too large for the memory there is.

Covers transforms/encoder/replica.py.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.families import save_family
from helpers.stub_device import see_gpus
from helpers.tiny_models import TEXTS

from sentence_beam.transforms.encoder import Encoder, devices
from sentence_beam.transforms.encoder import replica as replica_module
from sentence_beam.transforms.encoder.batch_memory import (
    LEAST_TOKENS,
    MemoryLimit,
    count_fitting_tokens,
    is_out_of_memory,
)
from sentence_beam.transforms.encoder.batches import Batch


def _batch(texts: int, length: int = 10) -> Batch:
    return Batch(np.arange(texts), np.zeros(texts * length, np.int64), np.full(texts, length))


def _with_room_for(tokens: int, tried: list[int]) -> Any:
    def work(batch: Batch) -> int:
        tried.append(len(batch.ids))
        if len(batch.ids) > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return len(batch.ids)

    return work


def test_what_a_device_had_room_for_is_kept() -> None:
    limit, tried = MemoryLimit(), []
    work = _with_room_for(300, tried)
    assert limit.run(_batch(100), lambda batch: len(batch.ids), work) == [250] * 4
    assert tried == [1000, 500, 250, 250, 500, 250, 250], "each half of what failed is tried"
    tried.clear()
    assert limit.run(_batch(100), lambda batch: len(batch.ids), work) == [250] * 4
    assert limit.run(_batch(97), lambda batch: len(batch.ids), work) == [250, 240, 240, 240]
    assert limit.run(_batch(30), lambda batch: len(batch.ids), work) == [300]
    assert tried == [250] * 4 + [250, 240, 240, 240, 300], "nothing fails a second time"


def test_later_units_have_the_batches_that_there_was_room_for(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu", tokens_per_batch=100)
    texts = [f"{text} {number}" for number in range(12) for text in TEXTS]
    expected, run, failed = encoder.encode(texts), encoder.replicas[0].forward.runner.run, []

    def limited(batch: Batch) -> Any:
        if len(batch.ids) > 60:
            failed.append(len(batch.ids))
            raise RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            )
        return run(batch)

    monkeypatch.setattr(encoder.replicas[0].forward.runner, "run", limited)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert 0 < len(failed) <= torch.get_num_threads() + 1
    failed.clear()
    found = encoder.embed(encoder.tokenize(texts))
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert failed == []
    assert found.stats.oom_splits > 5


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            True,
        ),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
            ),
            True,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), True),
        (
            RuntimeError(
                'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":1131'
            ),
            True,
        ),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_says_that_memory_ran_out(error: Exception, known: bool) -> None:
    assert is_out_of_memory(error) is known


def test_a_gpus_batch_is_what_there_is_memory_for(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_fitting_tokens(1, 10**6, 65536) == LEAST_TOKENS
    sizes = {}
    for pooler in ("mean", "sbert-wk:start=0,window=1"):
        replica = Encoder.load(
            str(tiny["bert"]), pooler=pooler, dtype="float32", device="cpu"
        ).replicas[0]
        sizes[pooler] = replica.forward.token_bytes
    assert 0 < sizes["mean"] < sizes["sbert-wk:start=0,window=1"], (
        "the states of more layers are kept"
    )
    replicas = [_on_gpu(replica, number) for number in (0, 1)]
    free = {0: 10**12, 1: 2 * 5000 * replica.forward.token_bytes}
    monkeypatch.setattr(replica_module, "measure_free_memory", lambda device: free[device.index])
    assert replica_module.tokens_per_batch(None, replicas[:1]) == 65536
    assert replica_module.tokens_per_batch(None, replicas) == 4096, (
        "the GPU with less memory decides"
    )
    assert replica_module.tokens_per_batch(777, replicas) == 777
    assert replica_module.tokens_per_alike_batch(None, replicas[1], "bert") == 16384, (
        "deterministic batches ask no machine"
    )


def test_a_family_whose_blocks_differ_in_width_loads(tmp_path: Path) -> None:
    save_family("gemma3n_text", tmp_path / "m")
    encoder = Encoder.load(str(tmp_path / "m"), dtype="float32", device="cpu")
    assert encoder.replicas[0].forward.token_bytes > 0


def _on_gpu(replica: Any, number: int) -> Any:
    fields = {**vars(replica), "device": torch.device("cuda", number)}
    return type(replica)(**fields)


def test_a_gpus_memory_is_in_segments_that_grow_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    see_gpus(monkeypatch, 1)
    names = (
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "CUBLAS_WORKSPACE_CONFIG",
    )
    names += ("TORCH_CUDNN_SDPA_DEPRIORITIZED",)
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is as it was afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    told: list[str] = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append, raising=False)
    monkeypatch.setattr(devices.torch, "empty", lambda *_, **__: None)
    devices.resolve_devices("cpu")
    assert torch.backends.cudnn.allow_tf32, "a processor says nothing"
    assert not any(name in os.environ for name in names)
    devices.resolve_devices("cuda")
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert told == ["expandable_segments:True"], "the environment may have been read before"
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert os.environ["TORCH_CUDNN_SDPA_DEPRIORITIZED"] == "1", "every new shape would be planned"
    assert not torch.backends.cudnn.allow_tf32, "float32 is float32, also in convolutions"
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512")
    devices.resolve_devices("cuda")
    assert "PYTORCH_ALLOC_CONF" not in os.environ
    assert len(told) == 1


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """Settings of cuDNN, which hold for the process, as they were."""
    cudnn: Any = torch.backends.cudnn
    parts = [getattr(cudnn, name, None) for name in ("conv", "rnn")]
    parts = [part for part in parts if hasattr(part, "fp32_precision")]
    before = [part.fp32_precision for part in parts]
    yield
    for part, word in zip(parts, before, strict=True):
        part.fp32_precision = word


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine that says it has a GPU, without settings; what its allocator is told."""
    told: list[str] = []
    see_gpus(monkeypatch, 1)
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    for name in (*devices.ALLOCATOR, "CUBLAS_WORKSPACE_CONFIG", "TORCH_CUDNN_SDPA_DEPRIORITIZED"):
        monkeypatch.setenv(name, "")  # so that it is as it was afterwards
        monkeypatch.delenv(name)
    return told


def test_segments_do_not_grow_where_the_driver_does_not_support_it(
    one_gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(devices.torch, "empty", fail)
    said = "CUDA driver error: operation not supported"
    devices.resolve_devices("cuda")
    assert one_gpu == ["expandable_segments:True", "expandable_segments:False"]
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:False"
    del os.environ["PYTORCH_ALLOC_CONF"]
    said = "CUDA error: out of memory"
    with pytest.raises(RuntimeError, match="out of memory"):
        devices.resolve_devices("cuda")


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="an older torch")
def test_float32_is_float32_also_in_a_process_that_asked_for_less_in_torchs_newer_words(
    one_gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.torch, "empty", lambda *_, **__: None)
    parts = [torch.backends.cudnn.conv, torch.backends.cudnn.rnn]
    for part in parts:
        part.fp32_precision = "tf32"
    devices.resolve_devices("cuda")
    assert [part.fp32_precision for part in parts] == ["ieee", "ieee"]
    assert not torch.backends.cudnn.allow_tf32, "reading the older flag does not raise"


def test_deterministic_batches_are_larger_on_a_gpu_that_is_fast_and_has_the_memory(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Encoder.load(str(tiny["bert"]), dtype="float32", device="cpu").replicas[0]
    on_gpu = _on_gpu(replica, 0)
    each = replica.forward.token_bytes
    found = {}
    for capability in ((8, 0), (9, 0)):
        for memory in (2 * 65536 * each, 65536 * each):
            with monkeypatch.context() as patch:
                patch.setattr(replica_module, "find_capability", lambda _, c=capability: c)
                patch.setattr(replica_module, "total_memory", lambda _, m=memory: m)
                tokens = replica_module.tokens_per_alike_batch(None, on_gpu, "bert")
            found[capability, memory // each] = tokens
    assert found == {
        ((8, 0), 131072): 16384,
        ((8, 0), 65536): 16384,
        ((9, 0), 131072): 65536,
        ((9, 0), 65536): 16384,
    }
