"""Templates: the text of a row from several of its columns, as in `{title}\\n\\n{body}`."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter

from transforms.base.errors import OptionError

HEADINGS = "headings"  # in what stands before pieces: the headings above a piece, not a column
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}
_ESCAPED = re.compile(r"\\([nt\\])")
Value = Callable[[str], str | None]


@dataclass(frozen=True)
class Template:
    """`names` of columns and the plain text around them: `around` has one more, before, between and
    behind them.
    """

    around: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names where it stands before pieces."""
        return tuple(name for name in self.names if name != HEADINGS)

    def around_headings(self, value: Value) -> tuple[str, ...]:
        """What stands before the pieces of a row with these values, cut where their headings go."""
        return self.parts(value, HEADINGS)

    def fill(self, value: Value) -> str:
        """The text with the values of the names, none of those that are None; "" where all of them
        are blank.
        """
        return "".join(self.parts(value, "")) if self.has_text(value) else ""

    def has_text(self, value: Value) -> bool:
        """Whether one of the names has a value that is not blank."""
        return any((value(name) or "").strip() for name in self.names)

    def parts(self, value: Value, left_open: str) -> tuple[str, ...]:
        """The text with its values, cut where the name `left_open` stands."""
        parts = [self.around[0]]
        for name, behind in zip(self.names, self.around[1:], strict=True):
            if name == left_open:
                parts.append(behind)
            else:
                parts[-1] += (value(name) or "") + behind
        return tuple(parts)


@functools.lru_cache(64)
def parse(text: str) -> Template:
    r"""The template that a text writes: names in braces, doubled braces for braces, `\n`, `\t` and
    `\\` escaped.

    Raises OptionError for braces that do not match and for names with conversions or formats.
    """
    around, names = [""], []
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise OptionError(f"{text!r}: {error}; write a brace that is one as {{{{ or }}}}") from None
    for plain, name, form, conversion in parsed:
        around[-1] += _ESCAPED.sub(lambda found: _ESCAPES[found[1]], plain)
        if name is None:
            continue
        if not name.strip() or form or conversion:
            said = f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
            raise OptionError(
                f"{text!r}: {said} is no column's name; write a name alone between braces"
            )
        names.append(name)
        around.append("")
    return Template(tuple(around), tuple(names))


def text_template(text: str) -> str:
    """A template of texts, checked: it names a column. Raises OptionError for others."""
    if not parse(text).names:
        raise OptionError(
            f"{text!r} names no column; write its name in braces, as in '{{title}}\\n\\n{{body}}'"
        )
    return text
