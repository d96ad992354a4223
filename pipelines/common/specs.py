"""The words of SPECs with their keys, as the help of a command ends with them."""

import textwrap
from dataclasses import replace

from sentence_beam.transforms.calibration import calibration_spec as calibrations
from sentence_beam.transforms.space import chunks_spec
from sentence_beam.transforms.space import pooler_spec as poolers
from sentence_beam.transforms.space.spec_options import Grammar, Option, Value
from sentence_beam.transforms.space.token_table import METHODS

WIDTH = 79
# What numbers of `--chunks` are if they are not given.
OPEN: dict[tuple[str, str], Value] = {
    ("budget", "tokens"): "what the model takes",
    ("late", "window"): "what the model takes",
    ("late", "overlap"): "an eighth of the window",
    ("late", "tokens"): chunks_spec.LATE_TOKENS,
}


def describe_poolers() -> str:
    """The words of `--pooler`."""
    heading = (
        "SPEC of --pooler: a word, or word:key=value,key=value; a+b puts the vectors of two side by"
        " side"
    )
    return format_section(heading, poolers.GRAMMAR)


def describe_chunks() -> str:
    """The words of `--chunks`."""
    words = {
        word: {
            key: replace(option, default=OPEN.get((word, key), option.default))
            for key, option in options.items()
        }
        for word, options in chunks_spec.CHUNKS.items()
    }
    grammar = replace(chunks_spec.GRAMMAR, names=words)
    return format_section("SPEC of --chunks: a word, or word:key=value,key=value", grammar)


def describe_methods() -> str:
    """The words of `fit --method`."""
    words = {**calibrations.CALIBRATIONS, **{method: {} for method in METHODS}}
    grammar = replace(calibrations.GRAMMAR, names=words)
    return format_section("SPEC of --method: a word, or word:key=value,key=value", grammar)


def format_section(heading: str, grammar: Grammar) -> str:
    """Return a heading and a line for each word of a grammar."""
    words = grammar.names
    told = "what stands in () is the default"
    if grammar.positional:
        told = f"{told}, and a key in [] needs no name"
    lines = [textwrap.fill(f"{heading}; {told}:", WIDTH)]
    widest = max(map(len, words))
    for word, options in words.items():
        labels = {grammar.label(word, key): option for key, option in options.items()}
        keys = ", ".join(_describe_key(*item) for item in labels.items()) or "no keys"
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


def _describe_key(label: str, option: Option) -> str:
    """A key with the values that it takes and its default.

    >>> _describe_key("count=", Option(("all", "no-special"), "all"))
    'count=all|no-special (all)'
    >>> _describe_key("[top=]", Option((), 10, number=True))
    '[top=]N (10)'
    """
    default = "required" if option.default is None else option.default
    return f"{label}{option.allowed()} ({default})"
