"""What `benchmarks.gpu_check` asks of models of real shapes beside their speed: the bits of
`--deterministic`, several GPUs, and the time of a block's parts.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType

from benchmarks.common import seconds
from benchmarks.gpu_exact import Finding, tried
from benchmarks.gpu_machine import Place
from benchmarks.gpu_speed import Shapes, run_units, units_of
from benchmarks.random_models import VOCABULARY, alike
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.replica import Replica
from sentence_beam.transforms.encoder.tokenize import Tokenized

LENGTH = 128  # tokens of the texts
TWICE = 1.8  # how much faster two GPUs are than one
_MOST_PARTS = 8  # operators that are named, the others together
_ANOTHER = np.int32(7)  # added to ids for texts that differ in every token


def same_bits_anywhere(shapes: Shapes, place: Place) -> Iterator[Finding]:
    """`--deterministic`: a text as the first, the middle and the last of a batch's texts."""
    for name in shapes.names:
        what = f"{name} --deterministic, first, middle, last"
        yield tried(what, partial(_same_bits, what, shapes, name, place))


def parts_of_blocks(shapes: Shapes, place: Place) -> Iterator[Finding]:
    """The share of time of each operator of a pass of each shape."""
    for name in shapes.names:
        what = f"{name}, parts of a pass, {LENGTH} tokens"
        yield tried(what, partial(_parts, what, shapes, name, place))


def several_gpus(shapes: Shapes, place: Place) -> Iterator[Finding]:
    """Each shape on one GPU and on all: equal vectors, how much faster."""
    if place.gpus < 2:
        yield Finding("several GPUs", "not measured", "there is one")
        return
    for name in shapes.names:
        what = f"{name}, {place.gpus} GPUs over one"
        yield tried(what, partial(_several, what, shapes, name, place))


def _same_bits(what: str, shapes: Shapes, name: str, place: Place) -> Finding:
    encoder = shapes.encoder(name, place, deterministic=True)
    lengths = [length for length in shapes.load.lengths if length <= encoder.tokens_per_batch]
    different = [length for length in lengths if not is_same_anywhere(encoder, length)]
    measured = f"not equal at {', '.join(map(str, different))} tokens" if different else "equal"
    return Finding(what, measured, f"the same bits, {lengths} tokens", not different)


def is_same_anywhere(encoder: Encoder, length: int) -> bool:
    """Whether texts of a length have the same vectors at every place of a batch."""
    texts = encoder.tokens_per_batch // length
    places = sorted({0, texts // 2, texts - 1})
    drawn = alike(texts, length, VOCABULARY // 2).ids.reshape(texts, length)
    text = drawn[0]
    vectors = []
    for number, place in enumerate(places):
        ids = drawn + _ANOTHER * np.int32(number + 1)  # other neighbours each time
        ids[place] = text
        vectors.append(encoder.embed(_tokenized(ids)).vectors[place])
    alone = encoder.embed(_tokenized(text[None])).vectors[0]
    return all(np.array_equal(alone, vector) for vector in vectors)


def _tokenized(ids: np.ndarray) -> Tokenized:
    """Return texts of one length, `ids` [B, T]."""
    texts, length = ids.shape
    offsets = np.arange(texts + 1, dtype=np.int64) * length
    counts = np.full(texts, length, np.int32)
    return Tokenized(ids.ravel(), offsets, counts, np.zeros(texts, bool))


def _parts(what: str, shapes: Shapes, name: str, place: Place) -> Finding:
    encoder = shapes.encoder(name, place)
    tokens = min(shapes.load.tokens[name], encoder.tokens_per_batch)
    batches = encoder.plan(alike(max(1, tokens // LENGTH), LENGTH, VOCABULARY)).batches
    work = partial(_pass, encoder.replicas[0], batches[0])
    work()
    took = time_of_operators(work, on_gpu=place.peak is not None)
    if not took:
        return Finding(what, "not seen", "which operators to join")
    total = sum(took.values())
    named = took.most_common(_MOST_PARTS)
    shares = [f"{operator} {100 * each / total:.0f} %" for operator, each in named]
    others = total - sum(each for _, each in named)
    shares.append(f"others {100 * others / total:.0f} %")
    return Finding(what, ", ".join(shares), "which operators to join")


@torch.inference_mode()
def _pass(replica: Replica, batch: Batch) -> None:
    """Pool a batch in this thread, the only one whose operators the profiler sees."""
    parts = replica(batch)
    for part in parts:
        part.vectors.cpu()


def time_of_operators(work: Callable[[], Any], on_gpu: bool) -> Counter[str]:
    """Return the microseconds of a call by operator; none where torch's profiler sees nothing.

    On a GPU they are those of the kernels that an operator starts.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    try:
        with torch.profiler.profile(activities=activities) as seen:
            work()
        events = list(seen.key_averages())
    except Exception:  # a machine may not let a process look
        return Counter()
    took: Counter[str] = Counter()
    for event in events:
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        # kernels have events of their own besides
        if event.device_type == DeviceType.CPU and "::" in event.key and spent > 0:
            took[event.key.split("::")[-1]] += spent
    return took


def _several(what: str, shapes: Shapes, name: str, place: Place) -> Finding:
    count = max(1, place.gpus * shapes.load.tokens[name] // LENGTH)
    units = units_of(alike(count, LENGTH, VOCABULARY))
    encoders = [shapes.encoder(name, place), shapes.encoder(name, place, device="cuda")]
    vectors = [encoder.embed(units[0]).vectors for encoder in encoders]
    took = []
    for encoder in encoders:
        work = partial(run_units, encoder, units)
        work()
        took.append(min(seconds(work) for _ in range(2)))
    ratio = took[0] / took[1]
    is_same = np.array_equal(*vectors)
    same = "equal" if is_same else "not equal"
    holds = is_same and (place.peak is None or ratio >= TWICE * place.gpus / 2)
    bar = f"the same bits, >= {TWICE * place.gpus / 2:g}x"
    return Finding(what, f"{same}, {ratio:.2f}x", bar, holds)
