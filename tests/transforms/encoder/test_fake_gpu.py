"""The real encoder on a GPU whose tensors have no values: no device is mixed, nothing is waited
for, dtypes, the calls of the attention kernel, the kernels of a block.

`pytest -s` prints the kernels of a block and their bytes for each token, by family.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fake_gpu import GPU, GpuRecord, check_attention, fake_gpu
from helpers.families import save_family
from helpers.family_survey import TEXTS
from helpers.tiny_models import TEXTS as SENTENCES
from helpers.variants import variants
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as st
from transformers import AutoTokenizer

from benchmarks.gpu_exact import POOLERS
from benchmarks.random_models import small
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.varlen import find_kernel
from sentence_beam.transforms.pooling import TokenStatistics
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.identity import tokenizer_digest
from sentence_beam.transforms.training.cnn_module import CNN003

if find_kernel() is None:
    pytest.skip("this torch has no kernel for texts of different lengths", allow_module_level=True)

_SHARED = {"num_key_value_heads": 2}
# How a family differs from the small model of its defaults, and the most kernels of a block.
PACKED: dict[str, tuple[dict[str, Any], int]] = {
    "bert": ({}, 11),
    "roberta": ({}, 11),
    "distilbert": ({}, 13),
    "modernbert": ({"local_attention": 16, "global_attn_every_n_layers": 2}, 28),
    "gte": ({}, 25),
    "nomic_bert": ({}, 25),
    "qwen2": (_SHARED, 25),
    "qwen3": (_SHARED, 27),
    "llama": (_SHARED, 25),
    "mistral": ({**_SHARED, "sliding_window": 8}, 25),
    "gemma": ({"num_key_value_heads": 1}, 43),
    "gemma3_text": ({**_SHARED, "use_bidirectional_attention": True, "sliding_window": 8}, 83),
}
PADDED: dict[str, tuple[dict[str, Any], int]] = {
    "bert": ({}, 13),
    "roberta": ({}, 13),
    "distilbert": ({}, 13),
    "modernbert": (PACKED["modernbert"][0], 22),
    "gte": ({}, 25),
    "nomic_bert": ({}, 25),
    "qwen2": (_SHARED, 37),
    "qwen3": (_SHARED, 49),
    "llama": (_SHARED, 37),
    "mistral": (PACKED["mistral"][0], 37),
    "gemma": (PACKED["gemma"][0], 37),
    "gemma3_text": (PACKED["gemma3_text"][0], 67),
    "gemma2": ({**_SHARED, "sliding_window": 8}, 61),
    "mpnet": ({}, 21),
    "t5": ({}, 26),
}
# transformers' mask of its bidirectional attention is made of a scalar in main memory
WAITS = {"gemma3_text": ["_to_copy"]}
IN_ONE_ROW = ("cls", "static", "first-last", "ditto:1-2", "sbert-wk:start=1")


# the others run with `pytest -m slow`
QUICK = (
    "bert",
    "modernbert",
    "gemma3_text",
    "gemma2",
    "t5",
    "ditto:1-2",
    "static",
    "cls-tanh",
)
QUICK += ("sbert-wk:start=1,window=1", "remove-biases", POOLERS[-1])
# each takes twice as long padded as without padding
SLOW_PADDED = ("gemma3_text", "modernbert")


def each(names: Iterable[str]) -> list[Any]:
    """Return parameters of a test, all but the quick ones marked as slow."""
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def load(record: GpuRecord, folder: Path, **options: Any) -> Encoder:
    """Load an encoder on the GPU; what it runs from then on is recorded."""
    record.is_loading = True
    encoder = Encoder.load(str(folder), device="cuda", **options)
    record.is_loading = False
    record.kernels.clear()
    record.waits.clear()
    return encoder


def run(encoder: Encoder, record: GpuRecord, texts: list[str]) -> None:
    """Run texts through a whole unit, with a check of a batch's dtypes and devices on the way."""
    unit = encoder.plan(encoder.tokenize(texts))
    record.kernels.clear()
    embedded = encoder.finish(encoder.start(unit))
    assert embedded.vectors.shape == (len(texts), encoder.dim)
    replica = encoder.replicas[0]
    with torch.inference_mode():
        states = replica.forward(unit.batches[0])
        pooled = replica(unit.batches[0])
    assert {(state.device, state.dtype) for state in states.hidden.values()} <= {
        (GPU, getattr(torch, encoder.space.dtype))
    }
    for own in states.own_attention.values():
        assert (own.device, own.dtype) == (GPU, torch.float32)
    for part in pooled:
        assert (part.vectors.device, part.vectors.dtype) == (GPU, torch.float32)
        assert (part.status.device, part.status.dtype) == (GPU, torch.uint8)


@pytest.mark.parametrize("family", each(PACKED))
def test_a_family_without_padding(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, most = PACKED[family]
    save_family(family, tmp_path, **changes)
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, tmp_path, pooler="mean", dtype="bfloat16")
        assert encoder.together is BatchSharing.PACKED, encoder.replicas[0].forward.objection
        run(encoder, record, TEXTS)
    assert record.waits == []
    check_kernels(family, record, most, sum(encoder.tokenize(TEXTS).lengths))


@pytest.mark.parametrize(
    "family",
    [
        *each(name for name in PADDED if name not in SLOW_PADDED),
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_PADDED),
    ],
)
def test_a_padded_family(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, most = PADDED[family]
    save_family(family, tmp_path, **changes)
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, tmp_path, pooler="mean", dtype="float32")
        assert encoder.together is BatchSharing.PADDED
        run(encoder, record, TEXTS)
    assert sorted(set(record.waits)) == WAITS.get(family, [])
    lengths = encoder.tokenize(TEXTS).lengths
    check_kernels(f"{family}, padded", record, most, len(lengths) * max(lengths))


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(PADDED.keys() - PACKED.keys()))
def test_a_family_that_is_padded_in_16_bits_too(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_family(family, tmp_path, **PADDED[family][0])
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, tmp_path, pooler="mean", dtype="bfloat16")
        assert encoder.together is BatchSharing.PADDED
        run(encoder, record, TEXTS)
    assert record.waits == []


def check_kernels(name: str, record: GpuRecord, most: int, tokens: int) -> None:
    """Print the kernels of a block and their bytes for each token; check their number."""
    kernels = record.block()
    total = sum(kernel.bytes for kernel in kernels)
    print(f"{name}: {len(kernels)} kernels a block, {total / tokens:,.0f} bytes a token")
    assert 0 < len(kernels) <= most, [kernel.name for kernel in kernels]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small("bert", tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small("modernbert", tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("pooler", each(POOLERS))
def test_a_pooler(pooler: str, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, bert, pooler=pooler, dtype="bfloat16")
        assert encoder.together is BatchSharing.PACKED
        run(encoder, record, SENTENCES)
    assert record.waits == []


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("pooler", each(IN_ONE_ROW))
def test_a_pooler_of_a_model_in_one_row_or_padded(
    pooler: str, dtype: str, modernbert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, modernbert, pooler=pooler, dtype=dtype)
        run(encoder, record, SENTENCES)
    assert record.waits == []


@variants(("method", "pooler"), [("tfidf", "tfidf"), ("token-counts", "sif")], (1,))
def test_a_pooler_with_token_statistics(
    method: str, pooler: str, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bert)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in SENTENCES]
    offsets = np.cumsum([0, *map(len, ids)])
    counted = TokenStatistics.count(
        method, tokenizer_digest(resolve_model(str(bert))), np.concatenate(ids).astype(np.int64),
        offsets, len(tokenizer),
    )  # fmt: skip
    for name, data in counted.to_files().items():
        (tmp_path / name).write_bytes(data)
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, bert, pooler=f"{pooler}:{tmp_path}", dtype="bfloat16")
        run(encoder, record, SENTENCES)
    assert record.waits == []


LAYERS = {
    "before and after the pooling": lambda: [
        st.CNN(64, 16, [1, 3]),
        st.Pooling(32),
        st.Dense(32, 8),
    ],
    "a CNN as the pooling": lambda: [CNN003(64)],
}


@variants("layers", LAYERS, (1,))
def test_trained_layers(
    layers: str, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [st.Transformer(str(bert)), *LAYERS[layers]()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path))
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, tmp_path, dtype="bfloat16")
        run(encoder, record, SENTENCES)
    assert record.waits == []


def test_batches_of_one_shape(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, bert, pooler="mean", dtype="bfloat16", deterministic=True)
        run(encoder, record, SENTENCES)
    assert record.waits == []


@variants("dtype", ["bfloat16", "float32"], (0,))
def test_pieces_pooled_from_windows(
    dtype: str, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(SENTENCES) * 3
    spans = [[(0, 90), (90, 200), (200, 300)], [(0, 3)]]
    with fake_gpu(monkeypatch) as record:
        encoder = load(record, bert, pooler="mean", dtype=dtype)
        windows = encoder.windows([text, "one"], spans, window=40)
        embedded = encoder.embed_pieces(windows)
    assert embedded.vectors.shape == (4, encoder.dim)
    assert record.waits == []


def test_the_gpu_refuses_what_a_real_one_does_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch) as record:
        there = torch.zeros(2, 3, device=GPU)
        with pytest.raises(RuntimeError, match="on the same device"):
            there + torch.zeros(2, 3)
        with pytest.raises(RuntimeError, match="local_scalar_dense"):
            bool(there.isfinite().all())
        assert record.waits == []
        there.cpu()
        assert record.waits == ["_to_copy"]
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(2, device=GPU)


def test_the_kernel_refuses_what_the_real_one_does_not_take() -> None:
    states = torch.zeros(5, 4, 16, dtype=torch.bfloat16)
    bounds = torch.tensor([0, 3, 5], dtype=torch.int32)
    check_attention(states, states, states, bounds, bounds, 3, 3)
    shared = states[:, :2]
    check_attention(states, shared, shared, bounds, bounds, 3, 3, enable_gqa=True)
    for query, key, offsets in (
        (states.float(), states.float(), bounds),
        (states, shared, bounds),
        (states, states, bounds.long()),
        (states[:, :, :12], states[:, :, :12], bounds),
        (states[:, :, ::2], states[:, :, ::2], bounds),
        (states, states, torch.arange(65_537, dtype=torch.int32)),
    ):
        with pytest.raises(AssertionError):
            check_attention(query, key, key, offsets, offsets, 3, 3)
