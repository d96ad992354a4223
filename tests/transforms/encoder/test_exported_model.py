"""An encoder written as a folder: sentence-transformers and the encoder give the same vectors from
it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiny_models import TEXTS

from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.fitting import fit_calibration
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.exported_model import (
    Export,
    explain_unsupported,
    write_export,
)
from sentence_beam.transforms.space import parse_pooler, resolve_model, resolve_space

LONG = [
    *TEXTS,
    "the dog " * 30,
    *(f"{a} {b} {c}" for a in ("cat", "apple") for b in ("red", "in") for c in TEXTS[:4]),
]


def exported(
    model: Path, method: str | None, folder: Path, **options: object
) -> tuple[Encoder, str | None]:
    """The encoder of these options, calibrated by a fit on some texts, and why
    sentence-transformers cannot have it.
    """
    calibration: Calibration | None = None
    if method is not None:
        plain = {name: value for name, value in options.items() if name != "truncate_dim"}
        pooled = Encoder.load(str(model), dtype="float32", **{**plain, "normalize": False})
        fitted_on = {"space": pooled.space.to_json()}
        rows = np.repeat(pooled.encode(LONG), 3, axis=0)
        calibration = fit_calibration(parse_calibration(method), None, rows, fitted_on).calibration
    encoder = Encoder.load(str(model), dtype="float32", calibration=calibration, **options)
    folder.mkdir()
    export = Export(
        resolve_model(str(model)),
        encoder.space,
        parse_pooler(options.get("pooler", "auto")),
        calibration,
    )
    return encoder, write_export(export, folder)


AFFINE = [
    "standardize",
    "remove-top:2",
    "remove-top:1,centred=no",
    "standardize+remove-top:2",
    "whitening",
    "whitening:8",
]
POOLERS = ["auto", "cls", "max", "mean-sqrt-len", "weighted-mean", "last-token", "max+mean"]
OPTIONS = [
    *(({"pooler": "mean"}, method) for method in [None, *AFFINE]),
    *(({"pooler": pooler}, None) for pooler in POOLERS),
    ({"pooler": "max+mean"}, "whitening:8"),
    ({"truncate_dim": 5}, None),
    ({"truncate_dim": 5}, "standardize"),
    ({"normalize": False, "truncate_dim": 7}, None),
    ({"normalize": False}, "whitening:8"),
    ({"prompt": "the dog is "}, "standardize"),
    ({"max_tokens": 5}, "whitening:8"),
]


def both_families() -> Iterator[Any]:
    """Each export of both families; of the one that pads on the left few are not slow."""
    for options, method in OPTIONS:
        yield pytest.param("bert", options, method, id=f"{options}-{method}-bert")
        left = (options.get("pooler") in ("last-token", "weighted-mean")) or "max_tokens" in options
        marks = [] if left else pytest.mark.slow
        yield pytest.param("xlnet", options, method, marks=marks, id=f"{options}-{method}-xlnet")


@pytest.mark.parametrize(("family", "options", "method"), both_families())
def test_both_give_the_same_vectors(tiny, tmp_path, family, options, method):
    from sentence_transformers import SentenceTransformer

    encoder, unfit = exported(tiny[family], method, tmp_path / "e", **options)
    assert unfit is None
    expected, again = encoder.encode(LONG), Encoder.load(str(tmp_path / "e"))
    assert again.space.id == encoder.space.id
    assert (again.encode(LONG) == expected).all()
    found = SentenceTransformer(str(tmp_path / "e"), device="cpu", local_files_only=True).encode(
        LONG
    )
    assert found.shape == expected.shape
    cosine = (
        (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    )
    assert cosine.min() >= 0.99999
    assert np.linalg.norm(found, axis=1) == pytest.approx(
        np.linalg.norm(expected, axis=1), rel=1e-3
    )


@pytest.mark.parametrize(
    ("options", "method", "why"),
    [
        ({"pooler": "first-last"}, "whitening:8", "it has no pooler first-last"),
        ({"pooler": "ditto:2-1,states=last"}, None, "it has no pooler ditto"),
        ({"pooler": "mean:layer=1"}, None, "it has no pooler mean:layer=1"),
        ({"pooler": "mean:count=no-special"}, None, "it has no pooler mean:count=no-special"),
        ({"pooler": "mean+static"}, "standardize", "it has no pooler static"),
        ({"pooler": "mean"}, "flow", "it has no calibration flow"),
    ],
)
def test_what_sentence_transformers_has_not_the_encoder_loads(tiny, tmp_path, options, method, why):
    encoder, unfit = exported(tiny["bert"], method, tmp_path / "e", **options)
    assert unfit.startswith(why)
    assert not (tmp_path / "e" / "modules.json").exists()
    again = Encoder.load(str(tmp_path / "e"))
    assert again.space.id == encoder.space.id
    assert (again.encode(LONG) == encoder.encode(LONG)).all()


@pytest.mark.parametrize(("rank", "fits"), [("attended", True), ("counted", False)])
def test_position_weights_beside_a_prompt_that_is_not_counted(tiny, rank, fits):
    files = resolve_model(str(tiny["bert"]))
    pooler = parse_pooler(f"weighted-mean:count=no-prompt,rank={rank}")
    space = resolve_space(files, pooler=pooler, prompt="the ")
    assert (explain_unsupported(Export(files, space, pooler, None)) is None) == fits


def test_a_given_option_wins_and_a_given_pooler_leaves_the_model_alone(tiny, tmp_path):
    exported(tiny["bert"], "standardize", tmp_path / "e", pooler="cls", max_tokens=9)
    kept = Encoder.load(str(tmp_path / "e"), normalize=False).space
    assert (kept.normalize, kept.max_tokens, kept.calibration is None) == (False, 9, False)
    other = Encoder.load(str(tmp_path / "e"), pooler="max", dtype="float32").space
    assert other.calibration is None
    plain = Encoder.load(
        str(tiny["bert"]), pooler="max", dtype="float32", max_tokens=other.max_tokens
    ).space
    assert other.id == plain.id
