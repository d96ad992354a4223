"""What options come to that are auto, or not given."""

import pytest

from transforms.base.errors import OptionError
from transforms.space.dtypes import native_dtype
from transforms.space.st_modules import StModules
from transforms.steps.options.auto import RULES, UNIT_TOKENS, UNIT_TOKENS_ACCELERATOR, Case, decide

DOT = StModules(similarity="dot")
STRANGE = StModules(similarity="manhattan")


@pytest.mark.parametrize(
    ("option", "case", "value"),
    [
        ("--dtype", Case(given="float16", remembered="bfloat16"), "float16"),
        ("--dtype", Case(given="auto", remembered="bfloat16", family="fnet"), "bfloat16"),
        ("--dtype", Case(family="fnet", accelerator=True), "float32"),
        ("--dtype", Case(accelerator=True, local=False), "bfloat16"),
        ("--dtype", Case(given="auto"), native_dtype()),
        ("--metric", Case(given="l2", remembered="ip"), "l2"),
        ("--metric", Case(remembered="ip"), "ip"),
        ("--metric", Case(given="auto", remembered="ip"), "cosine"),
        ("--metric", Case(modules=DOT), "ip"),
        ("--metric", Case(modules=STRANGE), "cosine"),
        ("--partition", Case(given="content", remembered="file"), "content"),
        ("--partition", Case(remembered="content"), "content"),
        ("--partition", Case(), "file"),
        ("--unit-tokens", Case(given=7, remembered=8), 7),
        ("--unit-tokens", Case(remembered=8, accelerator=True), 8),
        ("--unit-tokens", Case(device="cuda:1"), UNIT_TOKENS_ACCELERATOR),
        ("--unit-tokens", Case(), UNIT_TOKENS),
    ],
)
def test_the_first_rule_that_holds_decides(option, case, value):
    assert decide(option, case) == value


@pytest.mark.parametrize(
    ("option", "case", "match"),
    [
        ("--dtype", Case(local=False), "cannot know the workers' processors"),
        ("--metric", Case(modules=STRANGE, indexed=True), "manhattan"),
    ],
)
def test_what_cannot_be_known_has_to_be_named(option, case, match):
    with pytest.raises(OptionError, match=match):
        decide(option, case)


@pytest.mark.parametrize("option", RULES)
def test_the_last_rule_always_holds_and_says_else(option):
    *_, last = RULES[option]
    assert last.when == "else"
    assert last.holds(Case())
