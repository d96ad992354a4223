"""Errors a person sees: one line each, and the exit status a command ends with."""

import contextlib
from collections.abc import Iterator

STOPPED = 130  # exit status of a command that a person stopped, as shells have it
JOINERS = "\u200c\u200d"  # not printable, and part of words and of emoji


class SentenceBeamError(Exception):
    """Anything that ends a run with one line; exit status 1.

    `line` is what a command prints, if the message names parameters in place of flags (see
    `python_names`).
    """

    exit_code = 1
    line: str | None = None


class StoppedError(SentenceBeamError):
    """A person's Ctrl-C that ends the waiting, but not the job; exit status 130."""

    exit_code = STOPPED


class OptionError(SentenceBeamError):
    """An option, SPEC or input that the user has to change; exit status 2."""

    exit_code = 2


class MissingExtraError(OptionError):
    """An optional dependency that is not installed; the message holds the pip line that installs
    it.
    """


class UnfitModelError(OptionError):
    """A model that cannot run as it is asked to; in float32 it may be able to."""


class InputChangedError(SentenceBeamError):
    """An input file is no longer the one that was planned."""


class DamagedIndexError(SentenceBeamError):
    """A file of an index is missing, or is not what was written; the index can be built again from
    the shards.
    """


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
    """The text with characters that a terminal would obey, or that have no form, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in text
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type where it has no message.

    An error of this project is one line; what would end it is in the name of a file, and stands as
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
    said: str, mend: str = "", kind: type[SentenceBeamError] = SentenceBeamError
) -> Iterator[None]:
    """Raise one error, with what is `said` of a file and how to `mend` it, if the body cannot parse
    the file's bytes.

    Parsers of JSON, Parquet, arrays and tensors raise errors of any type for bytes that nobody
    wrote: RecursionError, KeyError, OverflowError. So the body parses bytes that are there and does
    nothing else: what a disk or a network raises is tried again, and must stay what it is. Errors
    of this project pass, but for those about options, which the bytes of a file are not.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, SentenceBeamError) and not isinstance(error, OptionError):
            raise
        reason = f"{said} ({first_line(error)})"
        raise kind(f"{reason}; {mend}" if mend else reason) from error
