"""Templates: the text of a row from several of its columns, as in `{title}\\n\\n{body}`."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter

from sentence_beam.transforms.base.errors import OptionError

HEADINGS = "headings"  # in a prefix of pieces: the headings above a piece, not a column
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}
_ESCAPED = re.compile(r"\\([nt\\])")
Value = Callable[[str], str | None]


@dataclass(frozen=True)
class Template:
    """`names` of columns, and `around`, the plain text before, between and after them.

    `around` has one entry more.
    """

    around: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names if it is a prefix of pieces."""
        return tuple(name for name in self.names if name != HEADINGS)

    def fill_around_headings(self, value: Value) -> tuple[str, ...]:
        """The prefix of a row's pieces with these values, cut at the place of their headings."""
        return self.parts(value, HEADINGS)

    def fill(self, value: Value) -> str:
        """The text with the values of the names; None is left out.

        If all values are blank, the text is "".
        """
        return "".join(self.parts(value, "")) if self.has_text(value) else ""

    def has_text(self, value: Value) -> bool:
        """Whether one of the names has a value that is not blank."""
        return any((value(name) or "").strip() for name in self.names)

    def parts(self, value: Value, left_open: str) -> tuple[str, ...]:
        """The text with its values, cut at the name `left_open`."""
        parts = [self.around[0]]
        for name, behind in zip(self.names, self.around[1:], strict=True):
            if name == left_open:
                parts.append(behind)
            else:
                parts[-1] += (value(name) or "") + behind
        return tuple(parts)


@functools.lru_cache(64)
def parse(text: str) -> Template:
    r"""Parse a template: names in braces, doubled braces for braces, escapes `\n`, `\t` and `\\`.

    Raises OptionError for braces that do not match and for names with conversions or formats.
    """
    around = [""]
    names = []
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise OptionError(f"{text!r}: {error}; write a brace that is one as {{{{ or }}}}") from None
    for plain, name, form, conversion in parsed:
        around[-1] += _ESCAPED.sub(lambda match: _ESCAPES[match[1]], plain)
        if name is None:
            continue
        if not name.strip() or form or conversion:
            if conversion:
                name += f"!{conversion}"
            if form:
                name += f":{form}"
            raise OptionError(
                f"{text!r}: {{{name}}} is no column's name; write a name alone between braces"
            )
        names.append(name)
        around.append("")
    return Template(tuple(around), tuple(names))


def text_template(text: str) -> str:
    """Check that a template of texts names a column. Raises OptionError for others."""
    if not parse(text).names:
        raise OptionError(
            f"{text!r} names no column; write its name in braces, as in '{{title}}\\n\\n{{body}}'"
        )
    return text
