"""Measure a run's stages: figures of each unit, file or step, with sums and quantiles over them.

Nothing here knows an engine. A unit's figures travel with its record, so that a unit that an engine
retries counts once.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

QUANTILES = (0.5, 0.95)
SAMPLED = 512  # values whose quantiles are exact

Item = TypeVar("Item")

Figures = Mapping[str, float]  # by name, as STAGES has them
Summary = dict[str, float]  # count, sum, p50, p95 and max of one figure
Measures = dict[str, dict[str, Summary]]  # by stage and figure


@dataclass(frozen=True)
class Figure:
    """A number that is measured again and again; its name ends in `_ms` for milliseconds."""

    name: str
    meaning: str


STAGES: dict[str, tuple[Figure, ...]] = {
    "plan": (
        Figure("planned_ms", "time from the start of the run until its plan was on record"),
        Figure(
            "file_ms",
            "finding out whether a file has changed and its shards are sound; reading its footer"
            " if not",
        ),
    ),
    "embed": (
        Figure("read_ms", "reading a unit's rows"),
        Figure("reuse_ms", "hashing a unit's rows and looking for what the store has of them"),
        Figure("load_ms", "loading the model"),
        Figure("tokenise_ms", "tokenising a unit's new texts and cutting them into batches"),
        Figure("wait_ms", "time that the model had nothing to do before a unit"),
        Figure(
            "forward_ms", "the forward pass of a unit, with pooling: how long the devices computed"
        ),
        Figure("write_ms", "writing a unit's shard"),
        Figure(
            "queue", "units before it that are not written yet when a unit is handed to the model"
        ),
        Figure("unit_rows", "rows of a unit"),
        Figure("unit_tokens", "tokens of a unit that went through the model"),
        Figure("unit_bytes", "bytes of a unit's shard"),
        Figure("host_tokens_s", "tokens that the tokenizer made in a second, for a unit"),
        Figure("device_tokens_s", "tokens that went through the model in a second, for a unit"),
    ),
    "index": (
        Figure("sample_ms", "reading a group of shards for the sample and the held-out rows"),
        Figure("train_ms", "a step of the training: a cell of the lists, a part of the sample"),
        Figure(
            "rows_ms",
            "reading the texts of a group of new shards, or of a segment's rows that are gone",
        ),
        Figure("match_ms", "matching a part of the rows, new with gone"),
        Figure("decide_ms", "deciding what to match, and which segments are written"),
        Figure("segment_ms", "building or updating a segment, with its part of the recall"),
        Figure("recall_ms", "recall over all segments"),
    ),
    "commit": (
        Figure("settle_ms", "checking that every planned unit is there and the ledger adds up"),
        Figure("manifest_ms", "writing the manifest"),
    ),
}
# Those that are measured while a unit is worked on; the others follow from its record.
OWN_FIGURES = tuple(
    figure.name
    for figure in STAGES["embed"]
    if not figure.name.startswith("unit_") and not figure.name.endswith("_tokens_s")
)
# The steps of each thread of a worker. The threads work in parallel: the busiest is the limit.
EMBED_THREADS = (
    ("read_ms",),
    ("reuse_ms", "load_ms", "tokenise_ms"),
    ("forward_ms",),
    ("write_ms",),
)
EMBED_PARTS = tuple(name for thread in EMBED_THREADS for name in thread)


class Stopwatch:
    """The figures of one unit, file or step while it is worked on; threads may take turns."""

    def __init__(self) -> None:
        self._figures: dict[str, float] = defaultdict(float)
        self._begun: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add the milliseconds that the body takes."""
        self._begun[name] = perf_counter()
        try:
            yield
        finally:
            self._figures[name] += 1000 * (perf_counter() - self._begun.pop(name))

    def set(self, name: str, value: float) -> None:
        """Set a figure that is no time."""
        self._figures[name] = value

    @property
    def figures(self) -> dict[str, float]:
        """Figures so far, including those that are still being timed."""
        now = perf_counter()
        running = {
            name: self._figures[name] + 1000 * (now - begun) for name, begun in self._begun.items()
        }
        return {name: round(value, 3) for name, value in {**self._figures, **running}.items()}


def time_waits(items: Iterator[Item]) -> Iterator[tuple[Item, float]]:
    """Yield the items, each with the milliseconds that the caller waited for it."""
    requested = perf_counter()
    for item in items:
        yield item, 1000 * (perf_counter() - requested)
        requested = perf_counter()


def summarise_figures(measured: Iterable[Figures]) -> dict[str, Summary]:
    """Summarise each figure over all units, files or steps that have it.

    >>> summed([{"read_ms": 4.0}, {"read_ms": 2.0, "load_ms": 9.0}])["read_ms"]
    {'count': 2, 'sum': 6.0, 'p50': 2.0, 'p95': 4.0, 'max': 4.0}
    """
    values: dict[str, list[float]] = defaultdict(list)
    for figures in measured:
        for name, value in figures.items():
            values[name].append(value)
    return {name: summarise(numbers, len(numbers)) for name, numbers in values.items()}


def summarise(numbers: list[float], most: int = SAMPLED) -> Summary:
    """Summarise at least one number; quantiles are exact for `most` numbers or fewer.

    For more numbers the quantiles are those of `most` evenly spaced ones.
    """
    ordered = sorted(numbers)
    count = len(ordered)
    places = min(count, most)
    values = [ordered[(2 * at + 1) * count // (2 * places)] for at in range(places)]
    # nearest rank: a value that was really measured
    ranks = {q: math.ceil(q * places - 1e-6 * places) - 1 for q in QUANTILES}
    quantiles = {f"p{q * 100:g}": values[rank] for q, rank in ranks.items()}
    return {"count": count, "sum": round(sum(ordered), 3), **quantiles, "max": ordered[-1]}


def count_tokens_a_second(figures: Figures) -> Figures:
    """Return the tokens of a unit that host and devices processed in a second, if timed.

    >>> tokens_a_second({"unit_tokens": 5000, "tokenise_ms": 10.0, "forward_ms": 500.0})
    {'host_tokens_s': 500000.0, 'device_tokens_s': 10000.0}
    """
    times = {
        "host_tokens_s": figures.get("tokenise_ms", 0.0),
        "device_tokens_s": figures.get("forward_ms", 0.0),
    }
    tokens = figures["unit_tokens"]
    return {
        name: round(1000 * tokens / spent, 1) for name, spent in times.items() if spent and tokens
    }


def find_limit(embed: Mapping[str, Summary]) -> str:
    """Return the bottleneck of Embed: the slowest step of the busiest thread; "" if untimed.

    >>> stages = {"read_ms": 30.0, "reuse_ms": 9.0, "tokenise_ms": 25.0, "forward_ms": 31.0}
    >>> limit_of(summed([stages]))
    'tokenise'
    """

    def spent(name: str) -> float:
        return embed[name]["sum"] if name in embed else 0.0

    thread = max(EMBED_THREADS, key=lambda names: sum(map(spent, names)))
    name = max(thread, key=spent)
    return name.removesuffix("_ms") if spent(name) else ""
