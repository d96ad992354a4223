"""Errors a person sees: one line each, and the exit status a command ends with."""

STOPPED = 130  # exit status of a command that a person stopped, as shells have it


class SentenceBeamError(Exception):
    """Anything that ends a run with one line; exit status 1."""

    exit_code = 1


class StoppedError(SentenceBeamError):
    """A person's Ctrl-C that ends the waiting, but not the job; exit status 130."""

    exit_code = STOPPED


class OptionError(SentenceBeamError):
    """An option, SPEC or input that the user has to change; exit status 2."""

    exit_code = 2


class MissingExtraError(OptionError):
    """An optional dependency that is not installed; the message holds the pip line that installs it."""


class UnfitModelError(OptionError):
    """A model that cannot run as it is asked to; in float32 it may be able to."""


class InputChangedError(SentenceBeamError):
    """An input file is no longer the one that was planned."""


class DamagedIndexError(SentenceBeamError):
    """A file of an index is missing, or is not what was written; the index can be built again from the shards."""


class DataGateError(SentenceBeamError):
    """The data failed a gate (too many rejected rows, drift); exit status 3."""

    exit_code = 3


class LedgerError(SentenceBeamError):
    """Rows in and rows out do not add up; exit status 4."""

    exit_code = 4


class SpaceMismatchError(OptionError):
    """Two embedding spaces differ; the message names the fields."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type where it has no message.

    >>> first_line(ValueError("no such column\\nat row 3")), first_line(EOFError())
    ('no such column', 'EOFError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
