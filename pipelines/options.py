"""What the options of all commands share; errors become one line."""

import argparse
import logging
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from pipelines.cli import INTERRUPTED
from transforms.errors import OptionError, SentenceBeamError
from transforms.imports import uncollected
from transforms.store.corpus.files import is_utf8

RUNNER = "FnApiRunner"
DEBUG = "SENTENCE_BEAM_DEBUG"
SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
SIZES = {"k": 10**3, "m": 10**6, "g": 10**9}


class Parser(argparse.ArgumentParser):
    """A mistake is one line, as all errors are; --help shows the usage."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message if "--help" in message else f"{message}; see --help")


def command(name: str, description: str) -> argparse.ArgumentParser:
    """A parser that takes no abbreviations and says where other flags go."""
    return Parser(
        prog=f"sentence-beam {name}",
        description=description,
        allow_abbrev=False,
        epilog=(
            f"The pipeline runs in this process (--runner={RUNNER}) unless --runner says FlinkRunner, "
            "DataflowRunner, PrismRunner or DirectRunner (Prism, where it can be had). Flags that are not listed here "
            "go to Beam's pipeline options (--runner, --project, ...); what only a runner's Java side knows goes "
            "after --."
        ),
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Our options, for a command that runs no pipeline; flags that are not ours are Beam's, for its filesystems.

    Raises OptionError on a flag that neither knows.
    """
    check_text(argv)
    try:
        args, rest = parser.parse_known_args(argv)
        if not rest:
            return args
    except OptionError:
        pass  # Beam's flags are among what it may be about
    with uncollected():
        from pipelines import beam_flags  # importing Beam takes two seconds

    return beam_flags.parse(parser, argv)[0]


def check_text(argv: Sequence[str]) -> None:
    """Raise OptionError for an argument that neither ids nor manifests could hold."""
    for text in argv:
        if not is_utf8(text):
            raise OptionError(f"argument {text!a} is not UTF-8; set the terminal to UTF-8")


def run_command(name: str, job: Callable[[list[str]], int], argv: Sequence[str] | None) -> int:
    """Run a command; whatever goes wrong is one line on stderr and an exit status.

    The environment variable SENTENCE_BEAM_DEBUG shows the traceback too.
    """
    quiet_logs()
    try:
        return job(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:  # `| head` took what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        print(f"sentence-beam {name}: {_one_line(error)}", file=sys.stderr)
        return error.exit_code if isinstance(error, SentenceBeamError) else 1


def _one_line(error: BaseException) -> str:
    """An error as a person needs it: ours as they are, others with what, where, and that a rerun goes on."""
    text = re.sub(r"\s*\[while running '.*?'\]", "", str(error), flags=re.DOTALL).strip()  # Beam's addition
    if isinstance(error, SentenceBeamError):
        return text
    if isinstance(error, KeyboardInterrupt) or text == "KeyboardInterrupt":
        return INTERRUPTED
    first = text.splitlines()[0] if text else type(error).__name__
    told = isinstance(error, OSError) or re.match(r"\w+Error: ", first)  # Beam puts some errors into a RuntimeError
    kind = "" if told else f"{type(error).__name__}: "
    return f"{kind}{first}; finished work is kept, run again to go on ({DEBUG}=1 shows where)"


def quiet_logs() -> None:
    """Only what a person has to act on; libraries' chatter stays out of the terminal."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)  # Prism's logger has a level of its own
    handler.addFilter(_not_of_an_engine)
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s: %(message)s", handlers=[handler])
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)


def _not_of_an_engine(record: logging.LogRecord) -> bool:
    """Beam writes an engine's whole stack traces straight to the root logger."""
    return record.module != "portable_runner" or bool(os.environ.get(DEBUG))


def size(text: str) -> int:
    """A count with an optional k, M or G: 256k, 1M."""
    match = re.fullmatch(r"(\d+)([kmgKMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive count (as in 50000, 256k or 1M)")
    return int(match[1]) * SIZES.get(match[2].lower(), 1)


def filled(text: str) -> str:
    """Anything but nothing, which is what an unset shell variable gives."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def duration(text: str) -> float:
    """A span of time in seconds: 7d, 12h, 30m, 45s."""
    match = re.fullmatch(r"(\d+)([dhms])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a span of time (as in 7d, 12h or 30m)")
    return int(match[1]) * SECONDS[match[2]]


def positive(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above zero")
    return int(text)


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return value


def distance(text: str) -> float:
    """A cosine distance: a number from 0 to 2."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 2:
        raise argparse.ArgumentTypeError(f"{text} is not a cosine distance, a number from 0 to 2")
    return value


def price(text: str) -> float:
    """An amount of money, zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not an amount of money (as in 1.20)")
    return value


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list; empty for none."""
    found = tuple(name for name in text.split(",") if name)
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text} names a column twice")
    return found
