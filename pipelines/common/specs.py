"""The words of SPECs with their keys, as the help of a command ends with them."""

import textwrap
from collections.abc import Mapping
from dataclasses import replace

from transforms.calibration import spec as calibrations
from transforms.space import spec as poolers
from transforms.space.chunks import CHUNKS, LATE_TOKENS
from transforms.space.spec_options import Option, Value
from transforms.space.token_table import METHODS

WIDTH = 79
# What numbers of `--chunks` are if they are not given.
OPEN: dict[tuple[str, str], Value] = {
    ("budget", "tokens"): "what the model takes",
    ("late", "window"): "what the model takes",
    ("late", "overlap"): "an eighth of the window",
    ("late", "tokens"): LATE_TOKENS,
}


def of_poolers() -> str:
    """The words of `--pooler`."""
    heading = (
        "SPEC of --pooler: a word, or word:key=value,key=value; a+b puts the vectors of two side by"
        " side"
    )
    return section(heading, poolers.POOLERS, poolers.POSITIONAL)


def of_chunks() -> str:
    """The words of `--chunks`."""
    words = {
        word: {
            key: replace(option, default=OPEN.get((word, key), option.default))
            for key, option in options.items()
        }
        for word, options in CHUNKS.items()
    }
    return section("SPEC of --chunks: a word, or word:key=value,key=value", words, {})


def of_methods() -> str:
    """The words of `fit --method`."""
    words = {**calibrations.CALIBRATIONS, **{method: {} for method in METHODS}}
    return section(
        "SPEC of --method: a word, or word:key=value,key=value", words, calibrations.POSITIONAL
    )


def section(
    heading: str, words: Mapping[str, Mapping[str, Option]], positional: Mapping[str, str]
) -> str:
    """Return a heading and a line for each word; `positional` has the keys that need no name."""
    told = "what stands in () is the default"
    if positional:
        told = f"{told}, and a key in [] needs no name"
    lines = [textwrap.fill(f"{heading}; {told}:", WIDTH)]
    widest = max(map(len, words))
    for word, options in words.items():
        keys = (
            ", ".join(_key(key, option, positional.get(word)) for key, option in options.items())
            or "no keys"
        )
        hanging = " " * (widest + 4)
        lines.append(
            textwrap.fill(
                f"  {word:{widest}}  {keys}",
                WIDTH,
                subsequent_indent=hanging,
                break_on_hyphens=False,
            )
        )
    return "\n".join(lines)


def _key(key: str, option: Option, positional: str | None) -> str:
    """A key with the values that it takes and its default.

    >>> _key("count", Option(("all", "no-special"), "all"), None)
    'count=all|no-special (all)'
    >>> _key("top", Option((), 10, number=True), "top")
    '[top=]N (10)'
    """
    name = f"{key}="
    if key == positional:
        name = f"[{name}]"
    default = option.default
    if default is None:
        default = "required"
    return f"{name}{option.allowed()} ({default})"
