"""A GPU that is none: tensors that say they are on it lie in main memory, and what a GPU would be
waited for is counted.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

GPU = torch.device("cuda", 0)
# operators whose result, or its size, main memory has to learn from the device
_READ = (
    "_local_scalar_dense", "item", "is_nonzero", "nonzero", "nonzero_numpy", "argwhere", "masked_select", "_unique2",
    "unique_dim", "unique_consecutive", "equal",
)  # fmt: skip
_COPIES = ("_to_copy", "to", "copy_")
# operators that add up in any order on a GPU
_UNORDERED = (
    "index_add",
    "index_add_",
    "scatter_add",
    "scatter_add_",
    "scatter_reduce",
    "bincount",
    "histc",
)


class Counts:
    """What a device was asked for: `waits` and `unordered` name operators, `copies_in` and
    `copies_out` are counted.
    """

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.unordered: list[str] = []
        self.copies_in = self.copies_out = 0


class StubTensor(torch.Tensor):
    """A tensor that says it is on a GPU."""

    held: Tensor
    counts: Counts

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device, counts: Counts) -> "StubTensor":
        layout = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        with torch.inference_mode(False):  # inside of it a view would have to be no view
            return torch.Tensor._make_wrapper_subclass(cls, held.shape, device=device, **layout)

    def __init__(self, held: Tensor, device: torch.device, counts: Counts) -> None:
        self.held, self.counts = held, counts

    def __repr__(self) -> str:
        return f"StubTensor({self.held})"

    # what torch does for these before it comes to an operator needs CUDA
    def __invert__(self) -> Any:
        return self.bitwise_not()

    def contiguous(self, **_: Any) -> Any:
        return self.clone(memory_format=torch.contiguous_format)

    def __getitem__(self, key: Any) -> Any:
        return StubTensor(self.held[self._places(key)], self.device, self.counts)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held[self._places(key)] = value.held if isinstance(value, StubTensor) else value

    def _places(self, key: Any) -> Any:
        given, shape = tree_flatten(key)
        tensors = [each for each in given if isinstance(each, Tensor)]
        moved = [
            each for each in tensors if each.dtype == torch.bool or not isinstance(each, StubTensor)
        ]
        self.counts.waits += ["index"] * len(moved)
        return tree_unflatten(
            [each.held if isinstance(each, StubTensor) else each for each in given], shape
        )

    def tolist(self) -> Any:
        self.counts.waits.append("tolist")
        return self.held.tolist()

    def record_stream(self, stream: Any) -> None:
        """Nothing: its memory is never used again early."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counts = next(
            each.counts
            for each in tree_flatten((args, kwargs or {}))[0]
            if isinstance(each, StubTensor)
        )
        return _run(func, args, kwargs or {}, counts)


class OnStub(TorchDispatchMode):
    """Inside, tensors can be made on the GPU that is none."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, self.counts)


def _run(func: Any, args: Any, kwargs: dict[str, Any], counts: Counts) -> Any:
    """An operator run in main memory; the device of what it makes is that of what it was given, or
    that asked for.
    """
    name = func.overloadpacket.__name__
    given, shape = tree_flatten((args, kwargs))
    stubs = [each for each in given if isinstance(each, StubTensor)]
    plain = [
        each
        for each in given
        if isinstance(each, Tensor) and not isinstance(each, StubTensor) and each.dim()
    ]
    if name == "lstm":  # takes how many texts have each step from main memory
        plain = [each for each in plain if each is not args[1]]
    asked = next((each for each in given if isinstance(each, torch.device)), None)
    device = asked if asked is not None else stubs[0].device if stubs else torch.device("cpu")
    if name in _COPIES:
        _count_copy(name, args, kwargs, asked, counts)
    elif stubs:
        if plain:
            raise RuntimeError(f"{name}: a tensor in main memory among those of a GPU")
        _count(func, name, args, kwargs, counts)
    held = [each.held if isinstance(each, StubTensor) else each for each in given]
    held = [torch.device("cpu") if isinstance(each, torch.device) else each for each in held]
    held_args, held_kwargs = tree_unflatten(held, shape)
    made = func(*held_args, **held_kwargs)
    if device.type != "cuda":
        return made
    known = {id(each.held): each for each in stubs}

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else StubTensor(value, device, counts)

    return args[0] if name == "copy_" else tree_map(wrapped, made)


def _count(func: Any, name: str, args: Any, kwargs: dict[str, Any], counts: Counts) -> None:
    by_flags = name in ("index", "index_put", "index_put_") and any(
        each is not None and each.dtype == torch.bool for each in args[1]
    )
    repeats = (
        [each for each in args[:2] if isinstance(each, Tensor)]
        if name == "repeat_interleave"
        else []
    )
    unsized = bool(repeats) and kwargs.get("output_size") is None and not isinstance(args[-1], int)
    if name in _READ or by_flags or unsized:
        counts.waits.append(name)
    added = name.startswith("index_put") and bool(
        (args[3:4] or (kwargs.get("accumulate", False),))[0]
    )
    running = name == "cumsum" and args[0].is_floating_point()
    if (name in _UNORDERED and args[0].is_floating_point()) or added or running:
        counts.unordered.append(name)


def _count_copy(name: str, args: Any, kwargs: dict[str, Any], asked: Any, counts: Counts) -> None:
    source, target = (
        (args[1], args[0].device) if name == "copy_" else (args[0], asked or args[0].device)
    )
    if source.device.type == target.type:
        return
    counts.copies_in += target.type == "cuda"
    counts.copies_out += target.type == "cpu"
    if not (kwargs.get("non_blocking") or any(each is True for each in args)):
        counts.waits.append("copy to" if target.type == "cuda" else "copy from")


class _Stream:
    """A stream, or an event: everything on it is done already."""

    def __init__(self, device: Any = None, **_: Any) -> None:
        self.device = device

    def record_event(self, event: Any = None) -> "_Stream":
        return self

    def elapsed_time(self, other: Any) -> float:
        return 1.0

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, other: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...


def see_gpus(
    monkeypatch: pytest.MonkeyPatch, count: int, properties: Callable[[Any], Any] | None = None
) -> None:
    """Let torch say that it sees so many GPUs, each with its `properties`."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if properties is not None:
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)


def patch_streams(
    monkeypatch: pytest.MonkeyPatch, mode: Callable[[], contextlib.AbstractContextManager[Any]]
) -> None:
    """Make torch's streams do nothing; threads enter `mode` where they choose a stream."""
    streams: dict[str, _Stream] = {}

    @contextlib.contextmanager
    def stream(_: Any) -> Iterator[None]:
        with mode():  # a thread of its own comes here first
            yield

    def current_stream(device: Any = None) -> _Stream:
        return streams.setdefault(str(device), _Stream(device))

    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", _Stream)
    monkeypatch.setattr(torch.cuda, "Event", _Stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "default_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())


@contextlib.contextmanager
def moved_by_replacing() -> Iterator[None]:
    """Let modules be moved to a device by new parameters in place of the old ones."""
    overwrite = torch.__future__.set_overwrite_module_params_on_conversion
    overwrite(True)
    try:
        yield
    finally:
        overwrite(False)


@contextlib.contextmanager
def stub_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """Inside there are devices `cuda:N`; what is asked of them is counted."""
    counts = Counts()
    patch_streams(monkeypatch, lambda: OnStub(counts))
    try:
        with moved_by_replacing(), OnStub(counts):
            yield counts
    finally:
        monkeypatch.undo()
