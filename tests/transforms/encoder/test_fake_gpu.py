"""The real encoder on a GPU whose tensors have no values: no device is mixed, nothing is waited
for, dtypes, the calls of the attention kernel, the kernels of a block.

`pytest -s` prints the kernels of a block and their bytes for each token, by family.
"""

import contextlib
import ctypes
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.families import save_family
from helpers.family_survey import TEXTS
from helpers.stub_device import moved_by_replacing, patch_streams
from helpers.tiny_models import TEXTS as SENTENCES
from helpers.variants import variants
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from transformers import AutoTokenizer

from benchmarks.gpu_exact import POOLERS
from benchmarks.random_models import small
from sentence_beam.transforms.encoder import Encoder, devices, one_row, probe, replica
from sentence_beam.transforms.encoder import encoder as encoders
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.varlen import find_kernel
from sentence_beam.transforms.pooling import TokenStatistics
from sentence_beam.transforms.pooling.transfer import to_host
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer
from sentence_beam.transforms.training.cnn_module import CNN003

GPU = torch.device("cuda", 0)
_CPU_PLACE, _CUDA_PLACE = 0, 1  # of c10::DeviceType
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
# operators that read values, which loading may do
_READS = ("_local_scalar_dense", "equal", "allclose")
_COPIES = ("_to_copy", "copy_")
_NO_KERNEL = ("device", "empty", "empty_like", "new_empty", "_unsafe_view", "detach")
# made of others without values, one kernel on a GPU
_ONE_KERNEL = ("rms_norm", "scaled_dot_product_attention")
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_ATTENTION = ("_varlen_attn", "scaled_dot_product_attention", "_softmax")
_WIDEST_HEAD = 256
_ONE_AT_A_TIME = threading.RLock()  # a mode of fakes is not made for several threads


@dataclass(frozen=True)
class KernelCall:
    """A kernel that a GPU would run, and the bytes that it reads and writes."""

    name: str
    bytes: int


@dataclass
class GpuRecord:
    """Records the `kernels` that ran on the GPU, and copies for which the host `waits`.

    Values may be read while it `is_loading`.
    """

    kernels: list[KernelCall] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    is_loading: bool = False

    def block(self) -> list[KernelCall]:
        """Return the kernels of one block: those from the last attention but one to the last."""
        places = [n for n, kernel in enumerate(self.kernels) if kernel.name in _ATTENTION]
        return self.kernels[places[-2] : places[-1]]


class OnFakeGpu(TorchDispatchMode):
    """Runs what concerns the GPU on tensors without values, everything else as always."""

    def __init__(self, record: GpuRecord, fakes: FakeTensorMode) -> None:
        super().__init__()
        self._record = record
        self._fakes = fakes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with _ONE_AT_A_TIME:
            return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        leaves = tree_leaves((args, kwargs))
        if not any(_concerns_gpu(leaf) for leaf in leaves):
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if self._record.is_loading and name in _READS:
            return _read_while_loading(name, args[0])
        if self._record.is_loading and name == "_to_copy" and _is_copied_out(args, kwargs):
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if name in _COPIES and _waits(name, args, kwargs):
            self._record.waits.append(name)
        if name == "_varlen_attn":
            check_attention(*args, **kwargs)
        if _is_composite(func, name):
            with self:  # inference mode leaves them whole
                return _decompose(func, args, kwargs)
        with self._fakes:
            made = func(*tree_map(self._faked, args), **tree_map(self._faked, kwargs))
        if _is_kernel(func, name, leaves):
            tensors = [leaf for leaf in [*leaves, *tree_leaves(made)] if isinstance(leaf, Tensor)]
            self._record.kernels.append(KernelCall(name, sum(map(_bytes, tensors))))
        if name == "_varlen_attn":  # it fills the state of its dropout, which there is none of
            self._record.kernels.append(KernelCall("zeros", _bytes(made[2])))
        return made

    def _faked(self, value: Any) -> Any:
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
            return self._fakes.from_tensor(value)
        return value


def _is_composite(func: Any, name: str) -> bool:
    """Return whether an operator is made of others on every device."""
    if func.namespace == "prim" or name in _ONE_KERNEL:
        return False
    return _COMPOSITE in func.py_kernels or _is_composite_in_cpp(func)


def _is_composite_in_cpp(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE.name)


def _decompose(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the parts of an operator as C++ does: Python's dropout copies where that does nothing."""
    if _is_composite_in_cpp(func):
        return func._op_dk(_COMPOSITE, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def _concerns_gpu(value: Any) -> bool:
    is_on_gpu = isinstance(value, torch.device) and value.type == "cuda"
    return is_on_gpu or isinstance(value, FakeTensor)


def _read_while_loading(name: str, value: Tensor) -> Any:
    """Return what makes a check pass: equal, close, finite."""
    if name != "_local_scalar_dense" or value.dtype == torch.bool:
        return True
    return 1


def _is_copied_out(args: Any, kwargs: dict[str, Any]) -> bool:
    target = kwargs.get("device")
    return args[0].device.type == "cuda" and target is not None and target.type == "cpu"


def _waits(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a copy between main memory and the GPU is one that the host waits for."""
    source = args[0].device
    target = kwargs.get("device") or source
    if name == "copy_":
        source = args[1].device
        target = args[0].device
    is_asynchronous = kwargs.get("non_blocking") or (len(args) > 2 and args[2])
    return source.type != target.type and not is_asynchronous


def check_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    key_bounds: Tensor,
    longest: int,
    longest_key: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: Any = None,
    enable_gqa: bool = False,
    **options: Any,
) -> None:
    """Assert what FlashAttention's kernel for texts of different lengths demands of a call."""
    assert query.dtype in (torch.bfloat16, torch.float16)
    assert key.dtype == query.dtype == value.dtype
    heads, width = query.shape[1:]
    assert width % 8 == 0
    assert width <= _WIDEST_HEAD
    assert key.shape == value.shape
    assert key.shape == (len(query), key.shape[1], width)
    assert heads % key.shape[1] == 0
    assert enable_gqa or heads == key.shape[1]
    for part in (query, key, value):
        assert part.stride(2) == 1
        # rows are read 16 bytes at a time
        assert part.stride(0) % 8 == part.stride(1) % 8 == part.storage_offset() % 8 == 0
    for each in (bounds, key_bounds):
        assert each.dtype == torch.int32
        assert each.dim() == 1
        assert each.is_contiguous()
        assert len(each) - 1 <= 65_535, "the texts of a batch are a dimension of the grid"
    assert 0 < longest == longest_key <= len(query)
    assert is_causal == (window_size is not None and tuple(window_size) == (-1, 0))
    assert scale is None or isinstance(scale, float)
    assert window_size is None or all(size >= -1 for size in window_size)
    assert not [name for name, given in options.items() if given is not None]


def _is_kernel(func: Any, name: str, leaves: list[Any]) -> bool:
    """Return whether an operator runs a kernel: no view, no allocation, no copy to or from it."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
    is_on_gpu = all(each.device.type == "cuda" for each in tensors)
    return is_on_gpu and not func.is_view and name not in _NO_KERNEL


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@contextlib.contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuRecord]:
    """Provide the device `cuda:0`, and encoders with `device="cuda"` on it, inside the body.

    Skips the test if this torch has no place for the guard of a device.
    """
    record = GpuRecord()
    fakes = FakeTensorMode()
    with monkeypatch.context() as patch, _cuda_guard():
        patch_streams(patch, lambda: OnFakeGpu(record, fakes))
        patch.setattr(Tensor, "record_stream", lambda *_: None)
        patch.setattr(encoders, "resolve_devices", _resolve_devices)
        patch.setattr(devices, "to_host", _copied_to_host)
        patch.setattr(replica, "measure_free_memory", lambda _: 10**11)
        # texts alone in a padded pass are there to be compared with
        patch.setattr(probe.Probe, "pass_alone", lambda *_: [])
        patch.setattr(probe, "are_alike", lambda *_: True)
        fused = one_row.fuse_norm
        patch.setattr(one_row, "fuse_norm", lambda norm: None if _adds_one(norm) else fused(norm))
        with moved_by_replacing(), OnFakeGpu(record, fakes):
            yield record


def _resolve_devices(device: str) -> list[torch.device]:
    return [torch.device("cpu") if device == "cpu" else GPU]


def _copied_to_host(values: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
    """Copy as `to_host` does, and return real zeros: vectors in main memory become arrays."""
    copies, copied = to_host(values)
    return [torch.zeros(each.shape, dtype=each.dtype) for each in copies], copied


def _adds_one(norm: Any) -> bool:
    """Return whether a norm adds 1 to its weights, which its values would say."""
    return type(norm).__name__.startswith("Gemma")


@contextlib.contextmanager
def _cuda_guard() -> Iterator[None]:
    """Give CUDA the guard of the CPU, which does nothing; a torch without CUDA has none."""
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    places = ctypes.c_void_p * (_CUDA_PLACE + 1)
    try:
        registry: Any = places.in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as error:
        pytest.skip(f"the simulated GPU: {error}")
    own = registry[_CUDA_PLACE]
    registry[_CUDA_PLACE] = registry[_CPU_PLACE]
    try:
        yield
    finally:
        registry[_CUDA_PLACE] = own


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
        method, hash_tokenizer(resolve_model(str(bert))), np.concatenate(ids).astype(np.int64),
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
