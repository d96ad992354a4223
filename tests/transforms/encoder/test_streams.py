"""What goes to and from a GPU on streams: nobody reads, or uses again, what is still being copied.

The streams are none: each runs its work when somebody waits for it, as late as a GPU may.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sentence_beam.transforms.encoder import devices
from sentence_beam.transforms.encoder.devices import Devices
from sentence_beam.transforms.pooling import transfer

GPU = torch.device("cuda", 1)


class LateStream:
    """A stream whose work is done when it is waited for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.work: list[Callable[[], None]] = []

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()

    def wait_stream(self, other: "LateStream") -> None:
        self.work.append(other.run)

    def wait_event(self, event: Any) -> None:
        self.work.append(event.synchronize)


class LateEvent:
    """An event that is over when its stream has come so far."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.timed, self.blocking = enable_timing, blocking
        self.synchronize: Callable[[], None] = lambda: None

    def record(self, stream: LateStream) -> None:
        self.synchronize = stream.run

    def elapsed_time(self, other: "LateEvent") -> float:
        assert self.timed
        assert other.timed
        return 1.0


class Streams:
    """The streams of a process, and which is current."""

    def __init__(self) -> None:
        self.default = LateStream()
        self.current = self.default

    @contextlib.contextmanager
    def on(self, stream: LateStream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class LateTensor:
    """A tensor that is filled when the stream runs that makes it."""

    def __init__(self, streams: Streams, device: torch.device, pinned: bool = False) -> None:
        self.streams, self.device, self.pinned = streams, device, pinned
        self.value: Any = None
        self.used_on: list[LateStream] = []

    def pin_memory(self) -> "LateTensor":
        found = LateTensor(self.streams, self.device, pinned=True)
        found.value = self.value
        return found

    def to(self, device: Any, non_blocking: bool = False) -> "LateTensor":
        assert non_blocking
        assert self.device.type == "cuda" or self.pinned, (
            "a copy from memory that is not pinned waits"
        )
        found = LateTensor(self.streams, torch.device(device), pinned=True)
        self.streams.current.work.append(lambda: setattr(found, "value", self.value))
        return found

    def record_stream(self, stream: LateStream) -> None:
        self.used_on.append(stream)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    found = Streams()
    monkeypatch.setattr(torch.cuda, "Stream", LateStream)
    monkeypatch.setattr(torch.cuda, "Event", LateEvent)
    monkeypatch.setattr(torch.cuda, "stream", found.on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: found.current)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: found.default)
    monkeypatch.setattr(transfer, "OWN_STREAMS", SimpleNamespace(streams={}))
    return found


def test_what_is_copied_to_a_gpu_is_there_before_it_is_read_and_kept_until_then(
    streams: Streams,
) -> None:
    computing, tokens = LateStream(), LateTensor(streams, torch.device("cpu"))
    tokens.value = "ids"
    with streams.on(computing):
        moved: Any = transfer.to_device(tokens, GPU)  # type: ignore[arg-type]
    assert moved.value is None, "nobody has waited"
    assert moved.used_on == [computing], "its memory is another stream's"
    computing.run()
    assert moved.value == "ids"


def test_results_are_whole_when_their_event_is_over(streams: Streams) -> None:
    computing, vectors = LateStream(), LateTensor(streams, GPU)
    computing.work.append(lambda: setattr(vectors, "value", "vectors"))
    with streams.on(computing):
        (copy,), copied = transfer.to_host([vectors])  # type: ignore[list-item]
    assert vectors.used_on == [transfer.get_copy_stream(GPU, "out")]
    assert copied.blocking, "who waits leaves the core to the tokenizer"  # type: ignore[attr-defined]
    copied.synchronize()
    assert copy.value == "vectors"  # type: ignore[attr-defined]


def test_a_lane_begins_when_what_loading_left_to_do_is_done(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, seen = LateTensor(streams, GPU), []
    streams.default.work.append(lambda: setattr(weights, "value", "weights"))

    def work(_: Any, __: Any) -> list[Any]:
        streams.current.run()
        seen.append(weights.value)
        return [SimpleNamespace(vectors=LateTensor(streams, GPU), status=LateTensor(streams, GPU))]

    monkeypatch.setattr(devices, "replace", lambda part, **_: part)
    replica: Any = SimpleNamespace(device=GPU)
    (passed,) = Devices([replica]).map(work, ["a batch"], lambda _: None)
    assert passed.wait() == 0.001
    assert seen == ["weights"]
