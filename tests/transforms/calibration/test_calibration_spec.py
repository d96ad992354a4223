"""Calibration SPECs."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration.calibration_spec import (
    CALIBRATIONS,
    POSITIONAL,
    parse_calibration,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("standardize", "standardize"),
        ("remove-top", "remove-top"),
        ("remove-top:10", "remove-top:10"),
        ("remove-top:3,centred=no", "remove-top:3,centred=no"),
        ("standardize+remove-top", "standardize+remove-top"),
        (
            "standardize:variance=sample+remove-top:top=2",
            "standardize:variance=sample+remove-top:2",
        ),
        ("whitening", "whitening"),
        ("whitening:all,ridge=1e-5", "whitening:ridge=1e-05"),
        ("whitening:shrinkage=.0,128", None),
        ("whitening:short=pad,128,covariance=sample", "whitening:128,short=pad"),
        ("flow:lr=1e-3,levels=2,seed=1234", "flow"),
        ("flow:seed=7,variant=paper", "flow:variant=paper,seed=7"),
        ("flow:epochs=0.5,depth=1", "flow:depth=1,epochs=0.5"),
    ],
)
def test_one_spelling_for_one_calibration(text, canonical):
    if canonical is None:
        with pytest.raises(OptionError, match=r"shrinkage=\.0 is not allowed"):
            parse_calibration(text)
        return
    spec = parse_calibration(text)
    assert str(spec) == canonical
    assert parse_calibration(canonical) == spec
    assert set(spec.parameters) == set(CALIBRATIONS[spec.name])


@pytest.mark.parametrize(
    ("width", "top"), [(768, 8), (384, 4), (1024, 10), (150, 2), (12, 1), (1, 0)]
)
def test_a_hundredth_of_the_directions_is_removed_where_no_number_is_said(width, top):
    for name in ("remove-top", "standardize+remove-top"):
        assert str(parse_calibration(name).fit_to(width)) == f"{name}:{top}"
        assert str(parse_calibration(f"{name}:3").fit_to(width)) == f"{name}:3"


def test_a_key_that_was_added_later_changes_no_digest_of_before():
    assert parse_calibration("flow").to_json()["seed"] == 1234
    assert parse_calibration("flow:seed=2").to_json()["seed"] == 2
    assert set(parse_calibration("whitening").to_json()) == set(CALIBRATIONS["whitening"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_spec_survives_its_text(data):
    name = data.draw(st.sampled_from(sorted(CALIBRATIONS)))
    items: dict[str, list[str]] = {part: [] for part in name.split("+")}
    for key, option in CALIBRATIONS[name].items():
        words = st.sampled_from(option.words) if option.words else st.nothing()
        numbers = st.integers(1, 999).map(str) if option.number else st.nothing()
        decimals = st.floats(0, 0.99).map(lambda x: f"{x:.3f}") if option.decimal else st.nothing()
        if data.draw(st.booleans()):
            part = next(part for part in items if key in CALIBRATIONS[part])
            value = data.draw(st.one_of(words, numbers, decimals))
            items[part].append(
                value
                if POSITIONAL.get(part) == key and data.draw(st.booleans())
                else f"{key}={value}"
            )
    text = "+".join(f"{part}:{','.join(said)}" if said else part for part, said in items.items())
    spec = parse_calibration(text)
    assert parse_calibration(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pca", "allowed: standardize, remove-top"),
        ("remove-top+standardize", "not known"),
        ("", "not known"),
        ("standardize:3", "'3' is not known"),
        ("remove-top:x", "top=x is not allowed"),
        ("remove-top:1,2", "given twice"),
        ("standardize+remove-top:centred=no", "'centred=no' is not known"),
        ("whitening:-1", "width=-1 is not allowed"),
        ("whitening:ridge=nan", "ridge=nan"),
        ("whitening:0", "width=0 is not allowed"),
        ("whitening:shrinkage=1", "shrinkage=1 is not allowed"),
        ("whitening:floor=1.5", "floor=1.5 is not allowed"),
        ("flow:levels=", "levels= is not allowed"),
    ],
)
def test_mistakes_say_what_is_allowed(text, said):
    with pytest.raises(OptionError, match=said):
        parse_calibration(text)
