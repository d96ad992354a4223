"""Errors that a person sees, one line each, and the exit statuses of commands.

A message names an option by `cite`. Python programs see the keyword, a command line the flag:

>>> error = OptionError(f"name all files, without {cite('append=True')}")
>>> str(error), error.line
('name all files, without append=True', 'name all files, without --append')
"""

import contextlib
from collections.abc import Iterator

# Around the two names of an option in a message: characters that Unicode keeps for inner use.
_BEGIN, _BETWEEN, _END = "\ufdd0", "\ufdd1", "\ufdd2"

STOPPED = 130  # exit status of a command that Ctrl-C stopped, as shells have it
TERMINATED = 143  # the same, by SIGTERM
JOINERS = "\u200c\u200d"  # not printable, but parts of words and of emoji


class SentenceBeamError(Exception):
    """Anything that ends a run with one line; exit status 1."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the message as Python programs see it, with keywords for options."""
        return name_keywords(self.message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @property
    def message(self) -> str:
        """Message with both names of each option that it cites, for a message around it."""
        return str(self.args[0]) if self.args else ""

    @property
    def line(self) -> str:
        """Message as a command prints it, with flags for options."""
        return name_flags(self.message)


class StoppedError(SentenceBeamError):
    """Ctrl-C or SIGTERM that ends the waiting, but not the job; exit status 130 or 143."""

    exit_code = STOPPED


class OptionError(SentenceBeamError):
    """An option, SPEC or input that the user has to change; exit status 2."""

    exit_code = 2


class MissingExtraError(OptionError):
    """An optional dependency is not installed; the message has the pip line that installs it."""


class UnfitModelError(OptionError):
    """A model cannot run as requested; in float32 it may be able to."""


class InputChangedError(SentenceBeamError):
    """An input file has changed since it was planned."""


class DamagedIndexError(SentenceBeamError):
    """A file of an index is missing or damaged; the shards suffice to build the index again."""


class DataGateError(SentenceBeamError):
    """The data failed a gate (too many rejected rows, drift); exit status 3."""

    exit_code = 3


class LedgerError(SentenceBeamError):
    """Rows in and rows out do not add up; exit status 4."""

    exit_code = 4


class SpaceMismatchError(OptionError):
    """Two embedding spaces differ; the message names the fields."""


BY_EXIT_STATUS: dict[int, type[SentenceBeamError]] = {
    kind.exit_code: kind for kind in (SentenceBeamError, OptionError, DataGateError, LedgerError)
}


def cite(keyword: str) -> str:
    """Return the mark of an option for a message: `cite("dtype")`, `cite("append=True")`.

    A command line shows the mark as the flag (`--dtype`, `--append`, for `append=False`
    `--no-append`), a Python program as it is written here.
    """
    name, _, value = keyword.partition("=")
    word = ("no-" if value == "False" else "") + name.replace("_", "-")
    return cite_as("-" + word if len(word) == 1 else "--" + word, keyword)


def cite_argument(name: str) -> str:
    """Return the mark of an option whose value is refused, as argparse names it."""
    return cite_as(f"argument --{name.replace('_', '-')}", name)


def cite_as(flag: str, keyword: str) -> str:
    """Return the mark of an option that a command line names by `flag`, Python by `keyword`."""
    return f"{_BEGIN}{flag}{_BETWEEN}{keyword}{_END}"


def name_flags(message: str) -> str:
    """Return the message with the flags of the options that it cites."""
    return _show_names(message, 0)


def name_keywords(message: str) -> str:
    """Return the message with the keywords of the options that it cites."""
    return _show_names(message, -1)


def _show_names(message: str, place: int) -> str:
    text, *cited = message.split(_BEGIN)
    for part in cited:
        names, _, rest = part.partition(_END)
        text += names.split(_BETWEEN)[place] + rest
    return text


def printable(text: str) -> str:
    """Escape the characters of a text that a terminal would obey or cannot show."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or character in JOINERS:
        return character
    return character.encode("unicode_escape").decode()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if it has none.

    An error of this project is one line, with flags for options. A line break in it is part of a
    file's name, and becomes an escape.

    >>> first_line(ValueError("no such column\\nat row 3")), first_line(EOFError())
    ('no such column', 'EOFError')
    >>> first_line(SentenceBeamError("a\\nb.parquet is empty"))
    'a\\\\nb.parquet is empty'
    """
    if isinstance(error, SentenceBeamError):
        return printable(error.line.strip())
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def refuse_damage(
    problem: str, mend: str = "", kind: type[SentenceBeamError] = SentenceBeamError
) -> Iterator[None]:
    """Raise one error, with the `problem` and how to `mend` it, if the body cannot parse bytes.

    Parsers of JSON, Parquet, arrays and tensors raise errors of any type for damaged bytes:
    RecursionError, KeyError, OverflowError. So the body must only parse bytes that have been read:
    errors of a disk or a network are retried, and must keep their type. Errors of this project
    pass, except OptionError, because a file's bytes are no option.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, SentenceBeamError) and not isinstance(error, OptionError):
            raise
        reason = error.message if isinstance(error, OptionError) else first_line(error)
        message = f"{problem} ({reason})"
        if mend:
            message += f"; {mend}"
        raise kind(message) from error
