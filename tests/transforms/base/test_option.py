"""Options that are declared by the fields of classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from apache_beam.transforms.resources import parse_resource_hints

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import (
    Declared,
    Exclusive,
    aliases_in,
    declared_in,
    flag_of,
    is_given,
    option,
    options,
)

ONE = Exclusive("source", required=True)
EITHER = Exclusive("order")
STORE = Declared("folder", kind=values.filled, metavar="STORE")


@options
class Made:
    store: str = option(STORE, kw_only=False)
    k: int = option("rows", kind=values.positive, flag="-k", default=10)
    size: int | None = option("bytes", kind=values.size, default=None)
    names: tuple[str, ...] = option("names", kind=values.names, default=())
    input: tuple[str, ...] | None = option("files", several="list", exclusive=ONE, default=None)
    text: str | None = option("a text", exclusive=ONE, default=None)
    age: float | None = option("a span", kind=values.duration, default=None)
    up: bool = option("upwards", exclusive=EITHER, default=False)
    down: bool = option("downwards", exclusive=EITHER, default=False)
    run: str = option("a run", metavar="RUN", positional=True, default="latest")
    fold: str = option("a word", choices=("best", "none"), default="best")


def test_values_become_those_of_their_fields() -> None:
    made = Made(
        Path("a/b"),  # type: ignore[arg-type]
        k="3",  # type: ignore[arg-type]
        size="2k",  # type: ignore[arg-type]
        names="a,b",  # type: ignore[arg-type]
        input=[Path("x"), "y"],  # type: ignore[arg-type]
        age="1h",  # type: ignore[arg-type]
    )
    assert made == Made("a/b", k=3, size=2000, names=("a", "b"), input=("x", "y"), age="1h")  # type: ignore[arg-type]
    assert (made.store, made.k, made.size, made.names, made.input) == (
        "a/b",
        3,
        2000,
        ("a", "b"),
        ("x", "y"),
    )
    assert (made.age, made.run) == (3600, "latest")


def test_none_is_the_default() -> None:
    assert Made("s", text="t", k=None, fold=None) == Made("s", text="t")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"store": " "}, "argument --store: is empty"),
        ({"k": 0}, "argument -k: 0 is not a whole number above zero"),
        (
            {"fold": "bset"},
            "argument --fold: invalid choice: 'bset' (choose from 'best', 'none'); did you mean best?",
        ),
        ({"up": "yes"}, "argument --up: 'yes' is not True or False"),
        ({"run": 3}, "argument RUN: 3 is not text"),
        ({"input": 3, "text": None}, "argument --input: 3 is no list"),
        ({"text": None}, "one of the arguments --input --text is required, and not both"),
        ({"input": "x"}, "one of the arguments --input --text is required, and not both"),
        ({"up": True, "down": True}, "argument --down: not allowed with argument --up"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_with_the_name_of_its_flag(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        Made(**{"store": "s", "text": "t", **given})
    assert caught.value.line == message


def test_of_a_set_of_three_one_alone_is_given() -> None:
    three = Exclusive("query", required=True)

    @options
    class Asked:
        a: str | None = option("", exclusive=three, default=None)
        b: str | None = option("", exclusive=three, default=None)
        c: str | None = option("", exclusive=three, default=None)

    with pytest.raises(OptionError, match="one of the arguments a b c is required, and one alone"):
        Asked(a="x", b="y")


def test_a_declaration_can_be_changed_for_one_class() -> None:
    @options
    class Other:
        store: str = option(STORE, help="another folder", default="here")

    assert declared_in(Other)["store"] == Declared(
        "another folder", kind=values.filled, metavar="STORE"
    )
    assert Other().store == "here"


def test_fields_without_a_declaration_have_their_types_alone() -> None:
    @options
    class Flagged:
        flags: Sequence[str] = ()
        rows: int | None = None
        dry: bool = False

    given = Flagged(flags=["--a=b,c"], rows=3)
    assert (given.flags, given.rows, given.dry) == (["--a=b,c"], 3, False)
    with pytest.raises(OptionError, match="dry: 'no' is not True or False"):
        Flagged(dry="no")  # type: ignore[arg-type]
    assert declared_in(Flagged) == {}


def test_a_flag_may_have_another_name_than_its_field() -> None:
    @options
    class Named:
        width: int | None = option("components", flag="--dim", default=None)

    assert aliases_in(Named) == {"dim": "width"}


def test_names_of_flags() -> None:
    declared = declared_in(Made)
    assert [flag_of(name, declared[name]) for name in ("store", "k", "run")] == [
        "--store",
        "-k",
        "RUN",
    ]
    assert aliases_in(Made) == {}
    made = Made("s", text="t", k=10)
    assert [is_given(made, name) for name in ("store", "k", "text", "input")] == [
        True,
        False,
        True,
        False,
    ]


def test_beam_takes_the_amounts_of_memory_that_are_taken_here() -> None:
    for text in ("16GB", "1.5 GiB", "500MB", "3B", "many", "16", "16gb", "GB"):
        assert _is_amount(values.memory, text) == _is_amount(
            lambda said: parse_resource_hints({"min_ram": said}), text
        )


def _is_amount(read: Any, text: str) -> bool:
    try:
        read(text)
    except (OptionError, ValueError):
        return False
    return True
