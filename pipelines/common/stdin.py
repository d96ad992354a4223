"""Standard input as an input file: `--input -`."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from sentence_beam.pipelines.common.progress import hiding_progress, print_aside
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus import files

if TYPE_CHECKING:
    from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import DiagnoseOptions
    from sentence_beam.transforms.steps.options import EmbedOptions
    from sentence_beam.transforms.steps.options.index_options import FitOptions
    from sentence_beam.transforms.steps.options.joins import PairsOptions
    from sentence_beam.transforms.training.distill_options import DistillOptions

STDIN = "-"
Asked = TypeVar(
    "Asked", "EmbedOptions", "FitOptions", "PairsOptions", "DistillOptions", "DiagnoseOptions"
)


@contextlib.contextmanager
def with_stdin(options: Asked, local: bool) -> Iterator[Asked]:
    """Yield the options with a file in place of `-`, a copy of standard input until the block ends.

    Its name is always the same, and so are ids and units. Raises OptionError unless this process
    does the work (`local`).
    """
    if options.input is None or STDIN not in options.input:
        yield options
        return
    if not local:
        raise OptionError(
            f"{cite('input')} - is read in this process alone; write a file that the workers see,"
            " and name that"
        )
    if sys.stdin is None:
        raise OptionError(
            f"{cite('input')} -: standard input is closed; give it a file or a pipe, or name files"
        )
    with tempfile.TemporaryDirectory() as folder:
        kind = options.format or "auto"
        suffix = "txt" if kind in ("auto", "text") else kind
        path = Path(folder) / f"{files.STDIN}.{suffix}"
        with path.open("wb") as file, as_typed() as typed:
            shutil.copyfileobj(typed, file)
        named = [str(path) if name == STDIN else name for name in dict.fromkeys(options.input)]
        yield replace(options, input=tuple(named))


@contextlib.contextmanager
def as_typed() -> Iterator[BinaryIO]:
    """Yield standard input. If somebody types it, print how to end it and pause progress."""
    if not sys.stdin.isatty():
        yield sys.stdin.buffer
        return
    with hiding_progress():
        print_aside("reading standard input; Ctrl-D on a line of its own ends it")
        yield sys.stdin.buffer
