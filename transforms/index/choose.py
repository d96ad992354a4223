"""The kind of index for a number of rows; the only reader of factory strings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from transforms.base.errors import OptionError
from transforms.index.faiss_module import load_faiss, short_reason
from transforms.index.range_file import HEADER_BYTES, LIST_BYTES
from transforms.index.vectors import check_metric, faiss_metric

FLAT_BELOW = 20_000
TRAIN_PER_LIST = 64
TRAIN_FLOOR = 39  # below this many training rows a list, recall falls; fewer lists are better then
RANGE_BYTES = 1_000_000_000  # most bytes of a range of lists, if it has more than one list
_SEGMENT_BYTES = 1_000_000_000
_SEGMENT_ROWS = 5_000_000
RERANK = 50  # candidates at least
OVER = 4  # candidates for each row that is wanted

_FACTORY = re.compile(
    r"(?:IVF(?P<nlist>[1-9]\d*)(?P<graph>_HNSW\d+)?,)?(?P<codec>Flat|SQ(?:4|6|8|fp16|bf16)|RaBitQ[2-8]?|PQ[1-9]\d*(?:x(?P<bits>\d+))?)"
)
FACTORIES = "Flat, SQ4|SQ6|SQ8|SQfp16|SQbf16, or IVF<n>[_HNSW<m>],<Flat|SQ...|RaBitQ[2-8]|PQ<m>>"
_CODEC_BITS = {"Flat": 32, "SQ4": 4, "SQ6": 6, "SQ8": 8, "SQfp16": 16, "SQbf16": 16, "RaBitQ": 1}
_CODEC_BITS |= {f"RaBitQ{bits}": bits for bits in range(2, 9)}


@dataclass(frozen=True)
class IndexPlan:
    """The index to train and build; JSON-able with `dataclasses.asdict`."""

    factory: str  # faiss factory string
    metric: str  # of faiss: ip or l2
    dim: int
    nlist: int  # coarse lists; 0 without IVF
    train_rows: int  # rows that the training sample should have; 0 without training
    nprobe: int  # at which its tuning starts; 0 without IVF
    # least number of candidates that are scored again; 0 if the index's scores are good enough
    rerank: int
    segment_rows: int  # most rows in one segment

    @property
    def rotated(self) -> bool:
        """Whether vectors are rotated before they are coded, as for few bits a component."""
        return "RaBitQ" in self.factory


def choose_index(
    n_rows: int, dim: int, index: str = "auto", *, metric: str = "ip", unit: bool = True
) -> IndexPlan:
    """The plan for `n_rows` vectors of `dim` components.

    `index`: `auto` (Flat below 20 000 rows, `IVF,SQ8` above), `compact` (`IVF,RaBitQ`, re-ranked by
    float16) or a faiss factory string of the allowed kinds. If rows are not of length 1 (`unit`),
    `auto` takes SQbf16: SQ8 divides the range of a sample into steps, and one long row would leave
    a single step for all others. Raises OptionError for any other string, for one that faiss
    refuses, and for one that needs more rows.
    """
    check_metric(metric)
    if index in ("auto", "compact"):
        codec = "RaBitQ"
        if index == "auto":
            codec = "SQ8" if unit else "SQbf16"
        return plan_for(automatic_index(n_rows, codec), n_rows, dim, metric)
    plan = plan_for(index, n_rows, dim, metric)
    _check_with_faiss(plan)
    check_rows_for(index, n_rows, dim)
    return plan


def check_rows_for(index: str, n_rows: int, dim: int) -> None:
    """Raise OptionError if an index cannot be built of so many vectors of `dim` components.

    This needs no faiss.
    """
    if lack := lack_of_rows(index, n_rows):
        raise OptionError(f"--index {lack}; use auto or fewer lists")
    parts = re.search(r"PQ(\d+)", index)
    if parts and dim % int(parts[1]):
        raise OptionError(
            f"--index {index}: {dim} components cannot be cut into {parts[1]} equal parts; use"
            " another PQ"
        )


def lack_of_rows(index: str, n_rows: int) -> str | None:
    """The words for an index that needs more rows to be trained; None if there are enough."""
    needed = rows_needed(index)
    if n_rows >= needed:
        return None
    return f"{index} has to be trained on {needed:,} rows or more, and there are {n_rows:,}"


def rows_needed(index: str) -> int:
    """The fewest rows that an index can be trained on."""
    if index in ("auto", "compact"):
        return 0
    match = _match(index)
    centroids = 0
    if match["codec"].startswith("PQ"):
        centroids = 2 ** int(match["bits"] or 8)
    return max(int(match["nlist"] or 0), centroids)


def automatic_index(n_rows: int, codec: str) -> str:
    """The factory string for `n_rows` rows; `codec` is that of an index with lists."""
    if n_rows < FLAT_BELOW:
        return "Flat"
    if n_rows < 10_000_000:
        return f"IVF{_lists(n_rows)},{codec}"
    if n_rows < 100_000_000:
        return f"IVF65536_HNSW32,{codec}"
    if n_rows < 1_000_000_000:
        return f"IVF262144_HNSW32,{codec}"
    return f"IVF1048576_HNSW32,{codec}"


def _lists(n_rows: int) -> int:
    """The power of two nearest 4 sqrt(n), or fewer, so that each list has enough training rows."""
    return min(2 ** round(math.log2(4 * math.sqrt(n_rows))), n_rows // TRAIN_FLOOR)


def cut_lists(sizes: np.ndarray, plan: IndexPlan) -> list[tuple[int, int]]:
    """Cut consecutive lists, with `sizes` int64 [lists] rows each, into ranges [first, stop).

    A range has at most `RANGE_BYTES`, with its kept vectors, or one list.
    """
    rows = _row_bytes(_match(plan.factory)["codec"], plan.dim)
    ends = np.concatenate([[0], np.cumsum(sizes * rows + LIST_BYTES)])
    cuts = []
    first = 0
    while first < len(sizes):
        most = ends[first] + RANGE_BYTES - HEADER_BYTES
        stop = max(first + 1, int(np.searchsorted(ends, most, "right")) - 1)
        cuts.append((first, stop))
        first = stop
    return cuts


def check_request(index: str) -> None:
    """Raise OptionError for an `--index` that fits no number of rows; needs no faiss."""
    if index not in ("auto", "compact"):
        _match(index)


def _match(factory: str) -> re.Match[str]:
    match = _FACTORY.fullmatch(factory)
    if match is None or (match["nlist"] is None and match["codec"].startswith(("RaBitQ", "PQ"))):
        if not factory.isprintable():
            factory = repr(factory)
        raise OptionError(
            f"--index {factory}: cannot be built in segments that share one quantizer; use auto,"
            f" compact, {FACTORIES}"
        )
    return match


def plan_for(factory: str, n_rows: int, dim: int, metric: str) -> IndexPlan:
    """The plan of a factory string, even if there are not enough rows to train it."""
    match = _match(factory)
    nlist = int(match["nlist"] or 0)
    rerank = RERANK if _is_rough(match["codec"]) else 0
    train_rows = 0
    if factory != "Flat":
        train_rows = min(n_rows, max(TRAIN_PER_LIST * nlist, 10_000))
    return IndexPlan(
        factory=factory,
        metric=metric,
        dim=dim,
        nlist=nlist,
        train_rows=train_rows,
        nprobe=min(nlist, _start_nprobe(n_rows)),
        rerank=rerank,
        segment_rows=min(_SEGMENT_ROWS, _SEGMENT_BYTES // _row_bytes(match["codec"], dim)),
    )


def depth_for(k: int, rerank: int) -> int:
    """The number of candidates for k wanted rows; `rerank` is that of the plan."""
    if not rerank:
        return k
    return max(OVER * k, rerank)


def _is_rough(codec: str) -> bool:
    """Whether these codes rank so roughly that the vectors are kept in a second file."""
    return codec == "RaBitQ" or codec.startswith("PQ")


def _start_nprobe(n_rows: int) -> int:
    steps = (
        (100_000, 8),
        (1_000_000, 16),
        (10_000_000, 32),
        (100_000_000, 48),
        (1_000_000_000, 64),
    )
    return next((nprobe for limit, nprobe in steps if n_rows < limit), 96)


def has_lists(factory: str) -> bool:
    """Return whether an index of this factory string has lists."""
    return _match(factory)["nlist"] is not None


def _row_bytes(codec: str, dim: int) -> int:
    """Bytes of a row in a segment: code with its factors, 8 for the id, and a kept vector."""
    size = _code_bytes(codec, dim) + 8
    if _is_rough(codec):
        size += refine_bytes(dim)
    return size


def refine_bytes(dim: int) -> int:
    """Bytes of a row's vector in the file with which candidates are scored again."""
    return 2 * dim + 8


def code_bytes(plan: IndexPlan) -> int:
    """Bytes of a row's code, with the factors of RaBitQ."""
    return _code_bytes(_match(plan.factory)["codec"], plan.dim)


def _code_bytes(codec: str, dim: int) -> int:
    if codec.startswith("PQ"):
        size, _, bits = codec[2:].partition("x")
        return -(-int(size) * int(bits or 8) // 8)
    factors = 0
    if "RaBitQ" in codec:
        factors = 8 if codec == "RaBitQ" else 20
    return -(-dim * _CODEC_BITS[codec] // 8) + factors


def _check_with_faiss(plan: IndexPlan) -> None:
    faiss = load_faiss()
    try:
        faiss.index_factory(plan.dim, plan.factory, faiss_metric(faiss, plan.metric))
    except RuntimeError as error:
        reason = short_reason(error)
        raise OptionError(
            f"--index {plan.factory}: faiss refuses it for {plan.dim} components ({reason})"
        ) from error
