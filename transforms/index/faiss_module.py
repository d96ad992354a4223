"""The only import of faiss: late, with a helpful message, and with a fixed number of threads."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base.errors import MissingExtraError, OptionError
from sentence_beam.transforms.base.extras import format_pip_line

_MISSING = (
    "the index needs faiss, which is not installed: {} (on Linux x86-64 with CUDA the extra gpu in"
    " place of cpu)"
)


@lru_cache(maxsize=1)
def load_faiss() -> Any:
    """The module `faiss`, imported at the first call.

    Raises MissingExtraError if it is not installed. Raises OptionError if it does not load, or if
    two distributions share its import name and overwrite each other's files.
    """
    installed = _find_installed()
    if len(installed) > 1:
        raise OptionError(_describe_both(installed))
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        if not installed:
            raise MissingExtraError(_MISSING.format(format_pip_line("cpu"))) from error
        reason = shorten_reason(error)
        raise OptionError(
            f"{installed[0]} does not load ({reason}): pip install --force-reinstall {installed[0]}"
        ) from error


def _find_installed() -> list[str]:
    """The installed distributions of faiss, by the names of the folders that pip makes.

    Reading their contents would take half a second.
    """
    names = (entry.name for folder in sys.path for entry in Path(folder or ".").glob("faiss*-info"))
    return sorted({name.partition("-")[0].replace("_", "-") for name in names})


def _describe_both(installed: list[str]) -> str:
    # Removing one of them also deletes files of the other, so both are removed first.
    return (
        f"{' and '.join(installed)} are both installed and overwrite each other's module `faiss`:"
        f" pip uninstall -y {' '.join(installed)}, then {format_pip_line('cpu')} (or with gpu in place of"
        " cpu)"
    )


def shorten_reason(error: Exception) -> str:
    """The message of an error of faiss, on one line and without its C++ source position."""
    return " ".join(str(error).split()).rpartition("rror: ")[2][:200]


@contextmanager
def use_threads(threads: int) -> Iterator[Any]:
    """The module `faiss`, computing with `threads` OpenMP threads in the block.

    OpenMP keeps the count per calling thread, so it is set at each call, never once at start-up.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)
