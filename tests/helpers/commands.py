"""Commands as a person runs them: one call, its exit status, and all that came out on both
streams.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import helpers.few_words  # noqa: F401
import pytest

from sentence_beam.pipelines.cli import main, run

# Children of one process that has done all imports: a run that is to be killed begins at once.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "sentence_beam.pipelines.embed",
        "sentence_beam.transforms.encoder",
        "transformers.models.bert",
    ]
)


class Forked(FORKS.Process):
    """A process that the server forks; if the server has died, a new one forks it."""

    def start(self) -> None:
        """Start the process. Raises EOFError or OSError if three servers died."""
        for attempt in range(3):
            try:
                return super().start()
            except (EOFError, OSError):
                if attempt == 2:
                    raise
                time.sleep(0.5)  # until it is known that the server has died


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str

    def ok(self) -> "Outcome":
        """Check that it was a success that said nothing on stderr."""
        assert (self.status, self.err) == (0, "")
        return self

    def failed(self, status: int, *names: object) -> str:
        """Check that it ended so, with one line on stderr that holds every name, and return the
        line.
        """
        assert self.status == status, self
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("sentence-beam ")
        assert "finished work is kept, run again to go on" not in lines[0], (
            "an error that nobody foresaw"
        )
        for name in names:
            assert str(name) in lines[0], self.err
        return lines[0]


Run = Callable[..., Outcome]


def runner(capfd: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command in this process; both streams are caught at the file
    descriptors.
    """

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        with _bare_logging():
            try:
                status = main([str(argument) for argument in arguments])
            except SystemExit as end:  # argparse ends help texts so
                status = int(end.code or 0)
        out, err = capfd.readouterr()
        return Outcome(status, out, err)

    return call


def child_process(arguments: list[str], err: str | os.PathLike[str] = os.devnull) -> Any:
    """A process, not started yet, that runs a command, on one thread, in this environment, with
    stderr in a file.
    """
    return Forked(target=_in_child, args=(arguments, os.fspath(err), dict(os.environ)))


def code_process(code: str, err: str | os.PathLike[str]) -> Any:
    """A process, not started yet, that runs Python code with stderr in a file; it has imported what
    `embed` imports.
    """
    return Forked(target=_code_in_child, args=(code, os.fspath(err)))


def _code_in_child(code: str, err: str) -> None:
    with open(err, "w") as out:
        os.dup2(out.fileno(), 2)
    exec(code, {})


def _in_child(arguments: list[str], err: str, environment: dict[str, str]) -> None:
    os.environ.clear()  # that of the test which had the first child
    os.environ.update(environment)
    in_child(arguments, err)


def in_child(arguments: list[str], err: str = os.devnull) -> None:
    """Run a command as the whole work of this process, on one thread, with stderr in a file."""
    import torch

    torch.set_num_threads(1)
    # a background job's children ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in ((1, os.devnull), (2, err)):
        with open(path, "w") as out:
            os.dup2(out.fileno(), number)
    sys.exit(run(arguments))


@contextlib.contextmanager
def _bare_logging() -> Iterator[None]:
    """Log lines go where they would outside of pytest: to stderr."""
    handlers, level = logging.root.handlers[:], logging.root.level
    logging.root.handlers[:] = []
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
