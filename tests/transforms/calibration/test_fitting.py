"""Fitting any calibration from moments and a sample, and the figures that come with it."""

import numpy as np
import pytest

from sentence_beam.transforms.calibration import parse_calibration
from sentence_beam.transforms.calibration.figures import cosine_histogram
from sentence_beam.transforms.calibration.fitting import fit_calibration
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.quality import mean_cosine

ROWS = (np.random.default_rng(0).normal(size=(600, 8)) * np.logspace(0, 1, 8) + 4).astype(
    np.float32
)
SPACE = {"space": {"pooled_id": "p"}}


@pytest.mark.parametrize("method", ["standardize", "remove-top:2", "whitening:5", "flow"])
def test_figures_are_those_of_the_rows(method):
    outcome = fit_calibration(parse_calibration(method), Moments.from_rows(ROWS), ROWS, SPACE)
    info, calibrated = outcome.calibration.info, outcome.calibration.apply(ROWS)
    assert info["fitted_on"]["n"] == 600
    assert (info["input_dim"], info["dim"]) == (8, calibrated.shape[1])
    for shape, rows in ((outcome.before, ROWS), (outcome.after, calibrated)):
        deviations = np.sqrt(np.maximum(np.linalg.eigvalsh(np.cov(rows.T, ddof=0))[::-1], 0))
        assert shape.spectrum == pytest.approx(deviations, rel=1e-4, abs=1e-4)
        assert shape.mean_cosine == pytest.approx(mean_cosine(rows))
        assert sum(shape.cosines) == pytest.approx(1)
    assert info["summary"]["mean_cosine"]["rows"] == 600
    assert info["summary"]["spectrum"]["before"]["largest"] == pytest.approx(
        outcome.before.spectrum[0]
    )


def test_the_number_of_directions_is_remembered_and_the_seed_decides_a_flow():
    found = fit_calibration(
        parse_calibration("remove-top"), Moments.from_rows(ROWS), ROWS, SPACE
    ).calibration
    assert (found.info["method"], found.info["parameters"]["top"]) == ("remove-top:1", 1)
    again = fit_calibration(
        parse_calibration("remove-top:1"), Moments.from_rows(ROWS), ROWS, SPACE
    ).calibration
    assert found.digest == again.digest
    flows = [
        fit_calibration(parse_calibration(f"flow:seed={seed}"), None, ROWS, SPACE)
        for seed in (1234, 1234, 5)
    ]
    first, same, other = (flow.calibration for flow in flows)
    assert first.digest == same.digest != other.digest
    assert np.abs(first.apply(ROWS) - other.apply(ROWS)).max() > 1e-3


def test_without_moments_the_sample_is_all_there_is():
    spec = parse_calibration("whitening")
    alone = fit_calibration(spec, None, ROWS[:100], SPACE).calibration
    whole = fit_calibration(spec, Moments.from_rows(ROWS[:100]), ROWS[:50], SPACE).calibration
    assert alone.digest == whole.digest
    assert alone.info["fitted_on"]["n"] == 100


def test_a_flow_tells_of_its_training():
    said: list[tuple[int, int, float]] = []
    outcome = fit_calibration(
        parse_calibration("flow:epochs=2"), None, ROWS, SPACE, progress=lambda *it: said.append(it)
    )
    flow = outcome.calibration.info["summary"]["flow"]
    assert said[-1][0] == said[-1][1] == flow["steps"]
    assert flow["curve"][-1]["held_out"] == flow["after"] == said[-1][2]


def test_constant_components_of_a_flow():
    rows = ROWS.copy()
    rows[:, 3] = 2.0
    outcome = fit_calibration(parse_calibration("flow"), None, rows, SPACE)
    assert outcome.calibration.info["summary"]["k_eff"] == 7
    assert "1 of 8 components are constant" in outcome.calibration.info["summary"]["warnings"][0]


def test_cosines_of_pairs():
    assert cosine_histogram(np.array([[1.0, 0], [0, 1], [-1, 0]]))[0] == pytest.approx(1 / 3)
    assert cosine_histogram(np.array([[2.0, 0], [3, 0]]))[-1] == 1
    assert sum(cosine_histogram(np.ones((1, 2)))) == 0
