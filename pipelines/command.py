"""A command from its arguments to its exit status; an error is one line on stderr."""

import argparse
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.cli import INTERRUPTED
from pipelines.options import check_text
from transforms.errors import OptionError, SentenceBeamError
from transforms.imports import uncollected

DEBUG = "SENTENCE_BEAM_DEBUG"


def own_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace]:
    """The options of a command that runs no pipeline; other flags go to Beam, for its filesystems.

    Raises OptionError for a flag that neither knows.
    """
    check_text(argv)
    try:
        args, rest = parser.parse_known_args(argv)
        if not rest:
            return (args,)
    except OptionError:
        pass  # Beam's flags are among what it may be about
    with uncollected():
        from pipelines import beam_flags  # importing Beam takes two seconds

    return (beam_flags.parse(parser, argv)[0],)


def main(
    parser: Callable[[], argparse.ArgumentParser],
    job: Callable[..., None],
    parse: Callable[..., tuple[Any, ...]] = own_flags,
) -> Callable[..., int]:
    """The `main` of a command: arguments (None: those of the process) -> exit status; `job` takes what `parse` gives.

    An error is one line on stderr; with the environment variable SENTENCE_BEAM_DEBUG its traceback is printed too.
    """

    def run(argv: Sequence[str] | None = None) -> int:
        options = parser()
        quiet_logs()
        try:
            job(*parse(options, list(sys.argv[1:] if argv is None else argv)))
            return 0
        except BrokenPipeError:  # `| head` took what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (Exception, KeyboardInterrupt) as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            print(f"{options.prog}: {_one_line(error)}", file=sys.stderr)
            return error.exit_code if isinstance(error, SentenceBeamError) else 1

    return run


def _one_line(error: BaseException) -> str:
    """The line for an error: the message of ours; of others the first line, with its type, and that a rerun goes on."""
    text = re.sub(r"\s*\[while running '.*?'\]", "", str(error), flags=re.DOTALL).strip()  # Beam's addition
    if isinstance(error, SentenceBeamError):
        return text
    if isinstance(error, KeyboardInterrupt) or text == "KeyboardInterrupt":
        return INTERRUPTED
    first = text.splitlines()[0] if text else type(error).__name__
    has_kind = isinstance(error, OSError) or re.match(r"\w+Error: ", first)  # Beam puts some errors into a RuntimeError
    kind = "" if has_kind else f"{type(error).__name__}: "
    return f"{kind}{first}; finished work is kept, run again to go on ({DEBUG}=1 shows where)"


def quiet_logs() -> None:
    """Set up logging so that the terminal shows errors alone."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)  # Prism's logger has a level of its own
    handler.addFilter(_not_of_an_engine)
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s: %(message)s", handlers=[handler])
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)


def _not_of_an_engine(record: logging.LogRecord) -> bool:
    """Whether a record is no stack trace of an engine, which Beam writes straight to the root logger."""
    return record.module != "portable_runner" or bool(os.environ.get(DEBUG))
