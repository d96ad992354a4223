"""Errors that a person sees, one line each, and the exit statuses of commands."""

import contextlib
from collections.abc import Iterator

STOPPED = 130  # exit status of a command that Ctrl-C stopped, as shells have it
TERMINATED = 143  # the same, by SIGTERM
JOINERS = "\u200c\u200d"  # not printable, but parts of words and of emoji


class SentenceBeamError(Exception):
    """Anything that ends a run with one line; exit status 1.

    `line` is what a command prints, if the message names parameters in place of flags (see
    `python_names`).
    """

    exit_code = 1
    line: str | None = None


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

    An error of this project is one line. A line break in it is part of a file's name, and becomes
    an escape.

    >>> first_line(ValueError("no such column\\nat row 3")), first_line(EOFError())
    ('no such column', 'EOFError')
    >>> first_line(SentenceBeamError("a\\nb.parquet is empty"))
    'a\\\\nb.parquet is empty'
    """
    text = str(error).strip()
    if isinstance(error, SentenceBeamError):
        return printable(text)
    return (text.splitlines() or [type(error).__name__])[0]


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
        message = f"{problem} ({first_line(error)})"
        if mend:
            message += f"; {mend}"
        raise kind(message) from error
