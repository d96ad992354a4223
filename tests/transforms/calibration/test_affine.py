"""Affine calibrations: the checks of each method, guards in small and degenerate cases."""

import numpy as np
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration import parse_calibration
from sentence_beam.transforms.calibration.affine import Fitted, affine_map, apply_affine, eigen
from sentence_beam.transforms.calibration.methods import fit_affine
from sentence_beam.transforms.calibration.moments import Moments

D = 8


def rows(n: int = 2000, d: int = D, seed: int = 0) -> np.ndarray:
    """Correlated rows with very different scales, away from the origin."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)) @ generator.normal(size=(d, d)) * np.logspace(
        0, 2, d
    ) + generator.normal(5, 9, d)


def fit(x: np.ndarray, method: str, narrow: bool = False) -> Fitted:
    """Fit a SPEC on rows."""
    return fit_affine(parse_calibration(method), Moments.from_rows(x), narrow)


def calibrated(x: np.ndarray, method: str, on: np.ndarray | None = None) -> np.ndarray:
    """Rows (or others) calibrated by a fit on rows."""
    return apply_affine(fit(x, method).tensors, np.asarray(x if on is None else on, np.float64))


def cosines(x: np.ndarray) -> np.ndarray:
    """Cosines of all pairs."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x @ x.T


METHODS = [
    "standardize",
    "remove-top:2",
    "remove-top:2,centred=no",
    "standardize+remove-top:2",
    "whitening",
    "whitening:3",
]


@pytest.mark.parametrize("method", METHODS)
def test_one_product_and_one_sum_give_the_same(method):
    tensors = fit(rows(), method).tensors
    matrix, offset = affine_map(tensors, D)
    direct = apply_affine(tensors, rows(50, seed=1))
    assert np.abs(rows(50, seed=1) @ matrix + offset - direct).max() <= 1e-10 * np.abs(direct).max()


@pytest.mark.parametrize("method", [m for m in METHODS if "centred" not in m])
def test_calibrated_rows_have_mean_zero(method):
    y = calibrated(rows(), method)
    assert np.abs(y.mean(axis=0)).max() <= 1e-10 * np.abs(y).max()


class TestStandardize:
    def test_mean_zero_and_variance_one(self):
        y = calibrated(rows(), "standardize")
        assert np.abs(y.std(axis=0) - 1).max() < 1e-12
        y = calibrated(rows(), "standardize:variance=sample")
        assert np.abs(y.std(axis=0, ddof=1) - 1).max() < 1e-12

    def test_twice_is_once(self):
        y = calibrated(rows(), "standardize")
        assert np.abs(calibrated(y, "standardize") - y).max() < 1e-9

    def test_the_units_of_a_component_do_not_matter(self):
        x, scales = rows(), np.logspace(-1, 1, D)
        assert (
            np.abs(calibrated(x * scales, "standardize") - calibrated(x, "standardize")).max()
            < 1e-9
        )

    def test_constant_components_become_zero(self):
        x = rows()
        x[:, 2], x[:, 5] = 7.3, 1e6
        fitted = fit(x, "standardize")
        y = apply_affine(fitted.tensors, x)
        assert (y[:, [2, 5]] == 0).all()
        assert np.isfinite(y).all()
        assert fitted.figures["k_eff"] == D - 2
        assert "2 of 8 components are constant" in fitted.warnings[0]


class TestRemoveTop:
    @pytest.mark.parametrize(
        "method", ["remove-top:3", "remove-top:3,centred=no", "standardize+remove-top:3"]
    )
    def test_nothing_is_left_in_the_directions_and_twice_is_once(self, method):
        tensors = fit(rows(), method).tensors
        y = apply_affine(tensors, rows())
        assert np.abs(y @ tensors["directions"].T).max() <= 1e-10 * np.abs(y).max()
        again = y - (y @ tensors["directions"].T) @ tensors["directions"]
        assert np.abs(again - y).max() <= 1e-10 * np.abs(y).max()
        assert np.abs(tensors["directions"] @ tensors["directions"].T - np.eye(3)).max() < 1e-12

    def test_the_rest_of_the_spectrum_stays(self):
        before = np.sort(np.linalg.eigvalsh(np.cov(rows().T)))[::-1]
        after = np.sort(np.linalg.eigvalsh(np.cov(calibrated(rows(), "remove-top:3").T)))[::-1]
        assert after[: D - 3] == pytest.approx(before[3:], rel=1e-9)
        assert np.abs(after[D - 3 :]).max() <= 1e-10 * before[0]

    def test_none_removed_is_centring(self):
        assert (
            np.abs(calibrated(rows(), "remove-top:0") - (rows() - rows().mean(axis=0))).max() < 1e-9
        )
        assert np.abs(calibrated(rows(), "remove-top:0,centred=no") - rows()).max() == 0

    def test_uncentred_removes_the_first_singular_vectors_of_the_rows(self):
        x = rows()
        q = np.linalg.svd(x, full_matrices=False)[2][:2]
        assert (
            np.abs(calibrated(x, "remove-top:2,centred=no") - (x - x @ q.T @ q)).max()
            <= 1e-9 * np.abs(x).max()
        )

    def test_the_sign_of_a_direction_does_not_matter(self):
        tensors = dict(fit(rows(), "remove-top:2").tensors)
        y = apply_affine(tensors, rows())
        tensors["directions"] = -tensors["directions"]
        assert np.abs(apply_affine(tensors, rows()) - y).max() <= 1e-12 * np.abs(y).max()

    def test_what_was_removed_is_said(self):
        values = np.linalg.eigvalsh(np.cov(rows().T, ddof=0))[::-1]
        figures = fit(rows(), "remove-top:2").figures
        assert figures["explained_variance"] == pytest.approx(values[2:].sum() / values.sum())
        assert figures["k_eff"] == D - 2

    def test_more_directions_than_rows_vary_in(self):
        fitted = fit(rows(4), "remove-top:7")
        assert fitted.tensors["directions"].shape == (2, D)
        assert "rows vary in 3 directions: 2 are removed, not 7" in fitted.warnings
        assert np.abs(apply_affine(fitted.tensors, rows(4))).max() > 1e-3

    def test_directions_that_vary_alike(self):
        x = np.concatenate([np.eye(4), -np.eye(4)]) * [3, 2, 2, 1]
        assert "directions 2 and 3 vary alike" in fit(x, "remove-top:2").warnings[0]
        assert not fit(x, "remove-top:1").warnings

    def test_all_directions_cannot_be_removed(self):
        with pytest.raises(
            OptionError, match=r"remove-top:8: vectors have 8 components; give 0 to 7"
        ):
            fit(rows(), "remove-top:8")


class TestStandardizeRemoveTop:
    def test_it_is_the_two_fits_one_after_the_other(self):
        standard = calibrated(rows(), "standardize")
        composed = calibrated(standard, "remove-top:3")
        assert np.abs(calibrated(rows(), "standardize+remove-top:3") - composed).max() < 1e-9

    def test_directions_are_those_of_the_correlation_matrix(self):
        directions = fit(rows(), "standardize+remove-top:2").tensors["directions"]
        assert (
            np.abs(np.abs(eigen(np.corrcoef(rows().T))[1][:, :2].T) - np.abs(directions)).max()
            < 1e-8
        )

    def test_none_removed_is_standardize(self):
        assert (
            calibrated(rows(), "standardize+remove-top:0") == calibrated(rows(), "standardize")
        ).all()


class TestWhitening:
    @pytest.mark.parametrize("k", [1, 3, D])
    def test_the_covariance_is_the_identity(self, k):
        y = calibrated(rows(), f"whitening:{k}")
        assert np.linalg.norm(np.cov(y.T) - np.eye(k)) <= 1e-6 * k
        y = calibrated(rows(), f"whitening:{k},covariance=population")
        assert np.linalg.norm(np.cov(y.T, ddof=0) - np.eye(k)) <= 1e-6 * k

    def test_an_invertible_map_of_the_input_changes_no_cosine(self):
        x, generator = rows(), np.random.default_rng(3)
        mapped = x @ generator.normal(size=(D, D)) + generator.normal(size=D)
        here, there = calibrated(x, "whitening"), calibrated(mapped, "whitening")
        assert np.abs(cosines(here[:50]) - cosines(there[:50])).max() < 1e-7

    def test_on_white_rows_it_is_orthogonal(self):
        kernel = fit(calibrated(rows(), "whitening"), "whitening").tensors["kernel"]
        assert np.abs(kernel.T @ kernel - np.eye(D)).max() < 1e-8

    def test_fewer_components_are_the_first_of_all(self):
        assert (
            np.abs(calibrated(rows(), "whitening:3") - calibrated(rows(), "whitening")[:, :3]).max()
            < 1e-9
        )

    def test_signs_are_settled(self):
        kernel = fit(rows(), "whitening").tensors["kernel"]
        assert (np.take_along_axis(kernel, np.abs(kernel).argmax(axis=0)[None], axis=0) > 0).all()

    def test_fewer_rows_than_components(self):
        x = rows(5)
        fitted = fit(x, "whitening")
        y = apply_affine(fitted.tensors, x)
        assert y.shape == (5, 4)
        assert np.linalg.norm(np.cov(y.T) - np.eye(4)) < 1e-6
        assert fitted.figures["k_eff"] == 4
        assert "only 4 of 8 components vary" in fitted.warnings[0]
        assert "5 rows are few" in fitted.warnings[1]

    def test_padding_keeps_the_width_asked_for(self):
        y = calibrated(rows(5), "whitening:6,short=pad")
        assert y.shape == (5, 6)
        assert (y[:, 4:] == 0).all()
        assert fit(rows(5), "whitening:6,short=pad").figures["k_eff"] == 4

    def test_constant_components_and_noise_are_left_out(self):
        x = rows()
        x[:, 0] = 3.0
        assert fit(x, "whitening").figures["k_eff"] == D - 1
        x[:, 0] = (
            np.random.default_rng(0).normal(size=len(x))
            * 3e-4
            * np.linalg.norm(np.cov(x.T), 2) ** 0.5
        )
        assert [fit(x, "whitening", narrow).figures["k_eff"] for narrow in (False, True)] == [
            D,
            D - 1,
        ]
        assert fit(x, "whitening:floor=1e-9", narrow=True).figures["k_eff"] == D

    def test_ridge_and_shrinkage(self):
        values, vectors = eigen(np.cov(rows().T))
        ridged = vectors / np.sqrt(values + 0.5)
        assert np.abs(fit(rows(), "whitening:ridge=0.5").tensors["kernel"] - ridged).max() < 1e-9
        shrunk = vectors / np.sqrt(0.9 * values + 0.1 * values.mean())
        assert (
            np.abs(fit(rows(), "whitening:shrinkage=0.1").tensors["kernel"] - shrunk).max() < 1e-9
        )
        assert fit(rows(4), "whitening:shrinkage=0.1").tensors["kernel"].shape == (D, D)

    def test_figures(self):
        values = eigen(np.cov(rows().T))[0]
        figures = fit(rows(), "whitening:3").figures
        assert figures["condition"] == pytest.approx(values[0] / values[2])
        assert figures["explained_variance"] == pytest.approx(values[:3].sum() / values.sum())

    def test_more_components_than_there_are(self):
        with pytest.raises(
            OptionError, match=r"whitening:9: vectors have 8 components; give 1 to 8"
        ):
            fit(rows(), "whitening:9")


@pytest.mark.parametrize("method", METHODS)
class TestTooLittle:
    def test_one_row(self, method):
        with pytest.raises(OptionError, match="needs two rows or more, not 1"):
            fit(rows(1), method)

    def test_equal_rows(self, method):
        for n in (2, 3, 7, 1000):
            with pytest.raises(OptionError, match=r"all [\d,]+ rows are equal"):
                fit(np.repeat(rows(1).astype(np.float32), n, axis=0), method)

    def test_duplicated_rows_change_nothing(self, method):
        x = rows(300)
        once, twice = (calibrated(x, method, rows(20, seed=1)) for x in (x, np.concatenate([x, x])))
        assert np.abs(cosines(once) - cosines(twice)).max() < 1e-9

    def test_two_rows(self, method):
        y = calibrated(rows(2), method)
        assert np.isfinite(y).all()
        assert np.abs(y).max() > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_same_from_one_part_and_from_fifty(method):
    x = rows()
    total = Moments.empty(D)
    for part in np.array_split(x, 50):
        total = total.merge(Moments.from_rows(part))
    split = fit_affine(parse_calibration(method), total).tensors
    for name, tensor in fit(x, method).tensors.items():
        assert np.abs(split[name] - tensor).max() <= 1e-10 * np.abs(tensor).max()
