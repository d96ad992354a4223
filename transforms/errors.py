"""Errors a person sees: one line each, and the exit status a command ends with."""


class SentenceBeamError(Exception):
    """Anything that ends a run with one line; exit status 1."""

    exit_code = 1


class OptionError(SentenceBeamError):
    """An option, SPEC or input that the user has to change; exit status 2."""

    exit_code = 2


class MissingExtraError(OptionError):
    """An optional dependency that is not installed; the message holds the pip line that installs it."""


class InputChangedError(SentenceBeamError):
    """An input file is no longer the one that was planned."""


class DataGateError(SentenceBeamError):
    """The data failed a gate (too many rejected rows, drift); exit status 3."""

    exit_code = 3


class LedgerError(SentenceBeamError):
    """Rows in and rows out do not add up; exit status 4."""

    exit_code = 4


class SpaceMismatchError(OptionError):
    """Two embedding spaces differ; the message names the fields."""
