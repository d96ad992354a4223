"""A GPU without memory: a tensor on it has a shape, a dtype and a device, and no values.

torch refuses to compute with tensors of two devices, and to read a value that does not exist. So a
pass that ends mixes no devices and waits for no value. All kernels that a GPU would run are counted.
"""

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.stub_device import moved_by_replacing, patch_streams
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from sentence_beam.transforms.encoder import devices, one_row, probe, replica
from sentence_beam.transforms.encoder import encoder as encoders
from sentence_beam.transforms.pooling.transfer import to_host

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
        patch.setattr(replica, "free_memory", lambda _: 10**11)
        # texts alone in a padded pass are there to be compared with
        patch.setattr(probe.Probe, "pass_alone", lambda *_: [])
        patch.setattr(probe, "are_alike", lambda *_: True)
        fused = one_row.fused_norm
        patch.setattr(one_row, "fused_norm", lambda norm: None if _adds_one(norm) else fused(norm))
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
