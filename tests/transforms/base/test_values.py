"""Values that a program gives, brought into the types of their fields."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import read


@dataclass(frozen=True)
class Options:
    """One field of each type."""

    path: str | None = None
    pooler: str = "auto"
    keep: bool | None = None
    append: bool = False

    def __post_init__(self) -> None:
        read(self)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("path", Path("/x/y"), "/x/y"),
        ("path", Path("gs://bucket/x"), "gs://bucket/x"),
        ("path", None, None),
        ("pooler", None, "auto"),
        ("append", None, False),
        ("keep", False, False),
    ],
)
def test_a_value_gets_the_type_of_its_field(name: str, given: Any, value: Any) -> None:
    found = getattr(Options(**{name: given}), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("keep", "no", "keep: 'no' is not True or False"),
        ("append", 1, "append: 1 is not True or False"),
        ("pooler", 3, "pooler: 3 is not text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, given: Any, line: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options(**{name: given})
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("5000", 5000), ("500k", 500_000), ("5M", 5_000_000), ("2.5B", 2_500_000_000),
        ("none", "none"),
    ],
)  # fmt: skip
def test_a_budget_is_a_count_of_tokens_or_none(text: str, tokens: int | str) -> None:
    assert values.budget(text) == tokens
    assert values.budget(str(values.budget(text))) == tokens


@pytest.mark.parametrize("text", ["0", "0.1", "", "5 M", "-1", "5T", "None"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not a count of tokens"):
        values.budget(text)


def test_a_span_of_time_is_a_number_and_a_unit() -> None:
    assert [values.duration(text) for text in ("7d", "12h", "30m", "0s")] == [
        604800,
        43200,
        1800,
        0,
    ]
    for text in ("7", "d7", "1 week", "-1d", "1.5h"):
        with pytest.raises(OptionError, match=f"^{text} is not a span of time"):
            values.duration(text)
