"""A command from its arguments to its exit status; an error is one line on stderr."""

import argparse
import contextlib
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.cli import INTERRUPTED
from sentence_beam.pipelines.common import config_file
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.options import (
    RUNNER,
    Parser,
    as_options,
    bare_words,
    check_text,
    every_command,
)
from sentence_beam.pipelines.common.progress import watching
from sentence_beam.pipelines.common.sigterm import find_stopped_status
from sentence_beam.transforms.base.errors import (
    OptionError,
    SentenceBeamError,
    StoppedError,
    printable,
)
from sentence_beam.transforms.base.imports import pause_collector

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DEBUG = "SENTENCE_BEAM_DEBUG"
BEAM = f"""\
A command that runs a pipeline runs it in this process (--runner={RUNNER}) unless --runner says
FlinkRunner, DataflowRunner, PrismRunner or DirectRunner (Prism, where it can be had). Flags that
are not the command's own go to Beam's pipeline options, which are these; what only a runner's Java
side knows goes after --."""


def parse_own_flags(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace]:
    """The options of a command that runs no pipeline; other flags go to Beam, for its filesystems.

    Raises OptionError for a flag that neither knows.
    """
    check_text(argv)
    assert isinstance(parser, Parser)
    try:
        args, rest = parser.parse_known_args(argv)
        words = bare_words(rest)
        if words is not None and (parser.bare or not words):
            parser.take_bare(args, words)
            return (args,)
    except OptionError:
        pass  # Beam's flags are among what it may be about
    with pause_collector():
        from sentence_beam.pipelines.common import beam_flags  # importing Beam takes two seconds

    return (beam_flags.parse(parser, argv)[0],)


def main(
    parser: Callable[[], argparse.ArgumentParser],
    job: Callable[..., CommandOutput],
    parse: Callable[..., tuple[Any, ...]] = parse_own_flags,
    *,
    kind: type["DataclassInstance"],
) -> Callable[..., int]:
    """Return the `main` of a command: arguments (None: those of the process) -> exit status.

    `parse` returns the arguments, which become options of the class `kind`, and further arguments
    of the job.

    The options of every command decide how the job's output is printed. An error is one line on
    stderr; with the environment variable SENTENCE_BEAM_DEBUG its traceback is printed too.
    """

    def run(argv: Sequence[str] | None = None) -> int:
        """Run the command and return its exit status."""
        options = parser()
        quiet_logs()
        make_printable()
        try:
            words = list(sys.argv[1:] if argv is None else argv)
            front, rest = take_front_options(options, words, kind)
            if front.help_beam:
                print(format_beam_help(), end="")
                return 0
            with contextlib.nullcontext() if front.quiet else watching(sys.stderr):
                arguments, *others = parse(options, rest)
                output = job(as_options(kind, arguments), *others)
            show(output, options.prog.split()[-1], front)
            if output.error is not None:
                raise output.error
            return 0
        except (Exception, KeyboardInterrupt) as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            print(f"{options.prog}: {_explain(error)}", file=sys.stderr)
            return find_exit_status(error)

    return run


def show(output: CommandOutput, name: str, front: argparse.Namespace) -> None:
    """Print the output of a command. Raises SentenceBeamError if its output cannot be written."""
    try:
        output.show(name, front.quiet, front.json)
        sys.stdout.flush()
    except OSError as error:
        # or Python tries again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `| head` took what it wanted
            raise SentenceBeamError(
                f"done, but its output cannot be written ({error.strerror})"
            ) from error


def take_front_options(
    parser: argparse.ArgumentParser, argv: list[str], kind: type["DataclassInstance"]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of every command, and the other arguments, after Beam's flags of a
    --config file, whose options of the class `kind` the parser takes.
    """
    at = argv.index("--") if "--" in argv else len(argv)
    nothing = argparse.Namespace(help_beam=False, config=None, quiet=False, json=False)
    front, rest = every_command().parse_known_args(argv[:at], nothing)
    if front.config is None:
        return front, [*rest, *argv[at:]]
    of_file = config_file.read_options(front.config, parser.prog.split()[-1], kind)
    assert isinstance(parser, Parser)
    config_file.check_values(front.config, kind, parser.take(of_file.own, rest))
    vars(front).update({name: True for name, is_on in of_file.output.items() if is_on})
    flags = {text.split("=")[0] for text in rest}
    beam = [text for text in of_file.beam if text.split("=")[0] not in flags]
    return front, [*beam, *rest, *argv[at:]]


def format_beam_help() -> str:
    """Return the help text about runners and the flags that go to Beam."""
    with pause_collector():
        from sentence_beam.pipelines.common import beam_parser  # importing Beam takes two seconds

    return f"{BEAM}\n\n{beam_parser.make_beam_parser().format_help()}"


def find_exit_status(error: BaseException) -> int:
    """The exit status of a command that ends with an error."""
    if isinstance(error, StoppedError) or _is_interrupt(error):
        return find_stopped_status()
    if isinstance(error, SentenceBeamError):
        return error.exit_code
    return 1


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C or SIGTERM stopped the command; Beam puts it into an error of its own."""
    return isinstance(error, KeyboardInterrupt) or _clean_text(error) == "KeyboardInterrupt"


def _clean_text(error: BaseException) -> str:
    line = error.line if isinstance(error, SentenceBeamError) else str(error)
    # Beam's addition
    return re.sub(r"\s*\[while running '.*?'\]", "", line, flags=re.DOTALL).strip()


def _explain(error: BaseException) -> str:
    """Return the line for an error: our message, or the type and first line of another's."""
    text = _clean_text(error)
    if isinstance(error, SentenceBeamError):
        return printable(text)
    if _is_interrupt(error):
        return INTERRUPTED
    first = text.splitlines()[0] if text else type(error).__name__
    # Beam puts some errors into a RuntimeError
    has_kind = isinstance(error, OSError) or re.match(r"\w+Error: ", first)
    kind = "" if has_kind else f"{type(error).__name__}: "
    return f"{kind}{first}; finished work is kept, run again to go on ({DEBUG}=1 shows where)"


def make_printable() -> None:
    """Make both streams escape characters that the terminal's encoding lacks.

    A stream that was closed before the command began ignores all output.
    """
    sys.stdout, sys.stderr = (
        stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr)
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def quiet_logs() -> None:
    """Set up logging so that the terminal shows errors alone."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)  # Prism's logger has a level of its own
    handler.addFilter(_is_not_of_engine)
    logging.basicConfig(
        level=logging.ERROR, format="%(levelname)s: %(message)s", handlers=[handler]
    )
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)


def _is_not_of_engine(record: logging.LogRecord) -> bool:
    """Whether a record is not an engine's stack trace, which Beam logs to the root logger."""
    return record.module != "portable_runner" or bool(os.environ.get(DEBUG))
