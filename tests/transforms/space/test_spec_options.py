"""The grammar of SPECs: what is the same for poolers, chunks and calibrations."""

from collections.abc import Callable

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration import parse_calibration
from sentence_beam.transforms.space import parse_pooler
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.space.spec_options import Grammar, Option

GRAMMAR = Grammar(
    "thing",
    {
        "cut": {
            "size": Option(("auto",), "auto", number=True, least=1),
            "share": Option((), 0.5, decimal=True, below=1),
            "text": Option((), "", form="TEXT", pattern=".*"),
        },
        "whole": {},
    },
    {"cut": "size"},
    rest="text",
)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("cut", {}),
        ("cut:7,share=1e-1", {"size": 7, "share": 0.1}),
        ("cut:share=0.2,size=7", {"share": 0.2, "size": 7}),
        ("cut:7,text=a,b=c", {"size": 7, "text": "a,b=c"}),
    ],
)
def test_items_are_keys_with_values_and_one_value_alone(
    text: str, given: dict[str, object]
) -> None:
    assert GRAMMAR.read(text) == ("cut", given)


def test_a_canonical_spec_has_the_value_alone_first_and_no_defaults() -> None:
    values = {"share": 0.25, "size": 7, "text": ""}
    assert GRAMMAR.write("cut", values) == "cut:7,share=0.25"
    assert GRAMMAR.write("whole", {}) == "whole"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cuts", "thing 'cuts' is not known; allowed: cut, whole; did you mean cut?"),
        ("whole:7", "thing 'whole:7': '7' is not known; whole takes no options"),
        ("cut:sise=7", "say key=value, allowed for cut: [size=]auto|N, share=X, text=TEXT; did"),
        ("cut:size=0", "size=0 is not allowed; say size=auto|N (N from 1)"),
        ("cut:share=1", "share=1 is not allowed; say share=X (X below 1)"),
        ("cut:" + "9" * 5000, "is not allowed; say size=auto|N"),
        ("cut:share=" + "9" * 500, "is not allowed; say share=X"),
        ("cut:7,size=8", "'size' is given twice; say it once"),
    ],
)
def test_a_message_has_what_is_wrong_and_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(OptionError) as error:
        GRAMMAR.read(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_pooler, "mean:count=a\nb"),
        (parse_calibration, "whitening:covariance=a\nb"),
        (ChunksSpec.parse, "budget:ends=a\nb"),
    ],
)
def test_a_message_is_one_line_whatever_the_value_is(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(OptionError, match="is not allowed") as error:
        parse(text)
    assert "\n" not in str(error.value)
