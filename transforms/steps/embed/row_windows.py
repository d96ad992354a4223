"""Windows of rows that are embedded together, and what became of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.base.measures import Stopwatch, count_tokens_a_second
from sentence_beam.transforms.steps.embed.inputs import Inputs
from sentence_beam.transforms.steps.embed.row_shapes import (
    AddedColumns,
    Element,
)
from sentence_beam.transforms.steps.embed.unit_embedder import count_fallbacks
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.batches import BatchStats


@dataclass(frozen=True)
class EmbeddedElement:
    """A result for (a part of) the element given with `place`, embedded or rejected."""

    place: Any
    value: Any
    rejected: bool = False


@dataclass(frozen=True)
class Window:
    """Elements that are embedded together, with their places, and the bounds of their rows.

    `reasons` are those of the rows that are not embedded. Of the others, `owners` [n] have the row
    of each text or piece, `inverse` [n] its place among the distinct ones, for which `inputs` is
    the model's input (None without any); `others` [n each] are columns that rows get beside
    vectors.
    """

    elements: list[tuple[Element, Any]]
    bounds: list[int]
    reasons: dict[int, str]
    owners: np.ndarray
    inverse: np.ndarray
    inputs: Inputs | None
    others: dict[str, list[Any]]
    watch: Stopwatch


@dataclass(frozen=True)
class EmbeddedWindow:
    """The results of a window: `columns` of embedded rows, their rows, and reasons by row.

    `counts` and `figures` measure its work.
    """

    window: Window
    columns: AddedColumns
    owners: np.ndarray
    reasons: dict[int, str]
    counts: dict[str, int]
    figures: Mapping[str, float]


def measure_window(
    window: Window, vectors: Vectors, status: np.ndarray, stats: "BatchStats", rejected: int
) -> tuple[dict[str, int], Mapping[str, float]]:
    """Return the counts and figures of a window.

    `vectors` are of the kept rows, `status` of all.
    """
    distinct = int(window.inverse.max(initial=-1)) + 1
    counts = {
        "rows": len(vectors.norm),
        "rejected": rejected,
        "tokens": int(vectors.tokens.sum()),
        "truncated": int(vectors.truncated.sum()),
        "lost": int(vectors.lost.sum()),
        "embedded": distinct,
        "duplicates": len(window.inverse) - distinct,
        "real": stats.real,
        "padded": stats.padded,
        "fallbacks": count_fallbacks(status),
        "oom_splits": stats.oom_splits,
    }
    figures = {**window.watch.figures, "unit_rows": counts["rows"], "unit_tokens": stats.real}
    return counts, {**figures, **count_tokens_a_second(figures)}
