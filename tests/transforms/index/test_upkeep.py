"""When an index is written or trained again."""

import numpy as np
import pytest

from sentence_beam.transforms.index.upkeep import (
    FOLLOWED,
    REWRITTEN,
    Fit,
    IndexRows,
    Upkeep,
    choose_upkeep,
    explain_drifted,
    explain_resized,
    imbalance,
)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (IndexRows(1000, 0, 0, 0), Upkeep(FOLLOWED)),
        (IndexRows(0, 0, 0, 0), Upkeep(FOLLOWED)),
        (IndexRows(950, 50, 50, 3), Upkeep(FOLLOWED)),
        (IndexRows(950, 51, 50, 3), Upkeep(REWRITTEN, "5 % in deltas and 5 % deleted")),
        (IndexRows(1000, 110, 0, 1), Upkeep(REWRITTEN, "11 % in deltas")),
        (IndexRows(800, 0, 200, 0), Upkeep(REWRITTEN, "20 % deleted")),
        (IndexRows(10, 10, 0, 1), Upkeep(REWRITTEN, "100 % in deltas")),
        (IndexRows(1000, 20, 0, 20), Upkeep(FOLLOWED)),
        (IndexRows(1000, 21, 0, 21), Upkeep(FOLLOWED, "21 deltas became one", joins=True)),
        (IndexRows(1000, 200, 0, 21), Upkeep(REWRITTEN, "20 % in deltas")),
    ],
)
def test_what_a_run_does_with_an_index(rows: IndexRows, found: Upkeep) -> None:
    assert choose_upkeep(rows) == found


def test_imbalance() -> None:
    assert imbalance(np.array([5, 5, 5, 5])) == 1
    assert imbalance(np.array([20, 0, 0, 0])) == 4
    assert imbalance(np.array([], np.int64)) is None


@pytest.mark.parametrize(
    ("rows", "why"), [(400, False), (401, True), (25, False), (24, True), (0, True)]
)
def test_four_times_the_rows_or_a_quarter(rows: int, why: bool) -> None:
    assert (explain_resized(100, rows) is not None) == why


@pytest.mark.parametrize(
    ("metric", "now", "said"),
    [
        ("ip", Fit(1.79, 0.571, 0.961, 0.965), None),
        ("ip", Fit(1.2, 0.6, 0.959, 0.965), "recall 0.9590, 0.9700"),
        ("ip", Fit(1.2, 0.6, 0.9, 0.975), None),
        ("ip", Fit(1.81, 0.6, 0.97, 0.98), "imbalance of the lists 1.81"),
        ("ip", Fit(1.2, 0.56, 0.97, 0.98), "inner product with the nearest centroid 0.5600"),
        ("l2", Fit(1.2, 0.68, 0.97, 0.98), None),
        ("l2", Fit(1.2, 0.70, 0.97, 0.98), "squared distance with the nearest centroid"),
        ("ip", Fit(None, None, None), None),
    ],
)
def test_drift(metric: str, now: Fit, said: str | None) -> None:
    why = explain_drifted(Fit(1.2, 0.6, 0.97, 0.98), now, metric)
    assert (why is None) if said is None else (why is not None and said in why)
