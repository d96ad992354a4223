"""The kind of index for a number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.index.faiss_module import load_faiss, shorten_reason
from sentence_beam.transforms.index.index_spec import AUTO, AUTOMATIC, FLAT, RANGE_BYTES, IndexSpec
from sentence_beam.transforms.index.metric_vectors import check_metric, find_faiss_metric
from sentence_beam.transforms.index.range_file import HEADER_BYTES, LIST_BYTES

FLAT_BELOW = 20_000
TRAIN_PER_LIST = 64
TRAIN_FLOOR = 39  # below this many training rows a list, recall falls; fewer lists are better then
MOST_SAMPLED = 10_000_000  # more rows improve lists by less than they cost
_SEGMENT_BYTES = 1_000_000_000
_SEGMENT_ROWS = 5_000_000
RERANK = 50  # candidates at least
OVER = 4  # candidates for each row that is wanted


@dataclass(frozen=True)
class IndexPlan:
    """The index to train and build."""

    spec: IndexSpec  # by its factory string
    metric: str  # of faiss: ip or l2
    dim: int
    nlist: int  # coarse lists; 0 without IVF
    train_rows: int  # rows that the training sample should have; 0 without training
    nprobe: int  # at which its tuning starts; 0 without IVF
    # least number of candidates that are scored again; 0 if the index's scores are good enough
    rerank: int
    segment_rows: int  # most rows in one segment

    @property
    def factory(self) -> str:
        """The factory string of faiss."""
        return self.spec.text


def choose_index(
    n_rows: int, dim: int, index: IndexSpec = AUTOMATIC, *, metric: str = "ip", unit: bool = True
) -> IndexPlan:
    """The plan for `n_rows` vectors of `dim` components.

    `index`: `auto` (Flat below 20 000 rows, `IVF,SQ8` above), `compact` (`IVF,RaBitQ`, re-ranked by
    float16) or a faiss factory string of the allowed kinds. If rows are not of length 1 (`unit`),
    `auto` takes SQbf16: SQ8 divides the range of a sample into steps, and one long row would leave
    a single step for all others. Raises OptionError for any other string, for one that faiss
    refuses, and for one that needs more rows.
    """
    check_metric(metric)
    if index.is_automatic:
        codec = "RaBitQ"
        if index.text == AUTO:
            codec = "SQ8" if unit else "SQbf16"
        return make_plan(choose_automatic_index(n_rows, codec), n_rows, dim, metric)
    plan = make_plan(index, n_rows, dim, metric)
    _check_with_faiss(plan)
    check_rows_for(index, n_rows, dim)
    return plan


def check_rows_for(index: IndexSpec, n_rows: int, dim: int) -> None:
    """Raise OptionError if an index cannot be built of so many vectors of `dim` components.

    This needs no faiss.
    """
    if lack := index.lack_of_rows(n_rows):
        raise OptionError(f"{cite('index')} {lack}; use auto or fewer lists")
    if dim % index.parts:
        raise OptionError(
            f"{cite('index')} {index}: {dim} components cannot be cut into {index.parts} equal"
            " parts; use another PQ"
        )


def choose_automatic_index(n_rows: int, codec: str) -> IndexSpec:
    """The index for `n_rows` rows; `codec` is that of an index with lists."""
    return FLAT if n_rows < FLAT_BELOW else IndexSpec.parse(f"{_choose_lists(n_rows)},{codec}")


def _choose_lists(n_rows: int) -> str:
    """The lists for so many rows, as a factory string has them."""
    if n_rows < 10_000_000:
        # the power of two nearest 4 sqrt(n), or fewer so that each list has enough training rows
        lists = 2 ** round(math.log2(4 * math.sqrt(n_rows)))
        return f"IVF{min(lists, n_rows // TRAIN_FLOOR)}"
    if n_rows < 100_000_000:
        return "IVF65536_HNSW32"
    if n_rows < 1_000_000_000:
        return "IVF262144_HNSW32"
    return "IVF1048576_HNSW32"


def cut_lists(
    sizes: np.ndarray, plan: IndexPlan, most_bytes: int = RANGE_BYTES
) -> list[tuple[int, int]]:
    """Cut consecutive lists, with `sizes` int64 [lists] rows each, into ranges [first, stop).

    A range has at most `most_bytes`, with its kept vectors, or one list. There are as few ranges
    as possible, of about equal bytes: lists that grow a little do not make another one.
    """
    rows = plan.spec.row_bytes(plan.dim)
    every = sizes * rows + LIST_BYTES
    ends = np.concatenate([[0], np.cumsum(every)])
    cuts = _cut(ends, most_bytes - HEADER_BYTES)
    if len(cuts) < 2:
        return cuts
    even = -(-int(ends[-1]) // len(cuts)) + int(every.max())
    return _cut(ends, min(even, most_bytes - HEADER_BYTES))


def _cut(ends: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Cut consecutive lists into ranges of at most so many bytes, each as large as possible.

    `ends` int64 [lists + 1] are the bytes before each list, and all bytes.
    """
    cuts = []
    first = 0
    while first < len(ends) - 1:
        stop = max(first + 1, int(np.searchsorted(ends, ends[first] + most, "right")) - 1)
        cuts.append((first, stop))
        first = stop
    return cuts


def make_plan(index: IndexSpec, n_rows: int, dim: int, metric: str) -> IndexPlan:
    """The plan of a factory string, even if there are not enough rows to train it."""
    # more than `MOST_SAMPLED` only for the floor
    sampled = max(min(TRAIN_PER_LIST * index.lists, MOST_SAMPLED), TRAIN_FLOOR * index.lists)
    return IndexPlan(
        spec=index,
        metric=metric,
        dim=dim,
        nlist=index.lists,
        train_rows=min(n_rows, max(sampled, 10_000)) if index.is_trained else 0,
        nprobe=min(index.lists, _choose_nprobe(n_rows)),
        rerank=RERANK if index.is_rough else 0,
        segment_rows=min(_SEGMENT_ROWS, _SEGMENT_BYTES // index.row_bytes(dim)),
    )


def choose_depth(k: int, rerank: int) -> int:
    """The number of candidates for k wanted rows; `rerank` is that of the plan."""
    return max(OVER * k, rerank) if rerank else k


def _choose_nprobe(n_rows: int) -> int:
    steps = (
        (100_000, 8),
        (1_000_000, 16),
        (10_000_000, 32),
        (100_000_000, 48),
        (1_000_000_000, 64),
    )
    return next((nprobe for limit, nprobe in steps if n_rows < limit), 96)


def _check_with_faiss(plan: IndexPlan) -> None:
    try:
        load_faiss().index_factory(plan.dim, plan.factory, find_faiss_metric(plan.metric))
    except RuntimeError as error:
        reason = shorten_reason(error)
        raise OptionError(
            f"{cite('index')} {plan.factory}: faiss refuses it for {plan.dim} components ({reason})"
        ) from error
