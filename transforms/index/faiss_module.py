"""The one place that imports faiss: late, with a message that mends, and with a thread count that
holds.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from transforms.base.errors import MissingExtraError, OptionError
from transforms.base.extras import pip_line

_MISSING = (
    "the index needs faiss, which is not installed: {} (on Linux x86-64 with CUDA the extra gpu in"
    " place of cpu)"
)


@lru_cache(maxsize=1)
def load_faiss() -> Any:
    """The module `faiss`, imported at the first call.

    Raises MissingExtraError where it is not installed, and OptionError where two distributions
    share its import name (each overwrites the other's files) or where it does not load.
    """
    installed = _installed()
    if len(installed) > 1:
        raise OptionError(_both_installed(installed))
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        if not installed:
            raise MissingExtraError(_MISSING.format(pip_line("cpu"))) from error
        mend = f"pip install --force-reinstall {installed[0]}"
        raise OptionError(
            f"{installed[0]} does not load ({short_reason(error)}): {mend}"
        ) from error


def _installed() -> list[str]:
    """The distributions of faiss, by the names of the folders that pip leaves: their contents take
    half a second.
    """
    found = (entry.name for folder in sys.path for entry in Path(folder or ".").glob("faiss*-info"))
    return sorted({name.partition("-")[0].replace("_", "-") for name in found})


def _both_installed(installed: list[str]) -> str:
    # Removing one of them also deletes files of the other, so both have to go before one comes
    # back.
    return (
        f"{' and '.join(installed)} are both installed and overwrite each other's module `faiss`:"
        f" pip uninstall -y {' '.join(installed)}, then {pip_line('cpu')} (or with gpu in place of"
        " cpu)"
    )


def short_reason(error: Exception) -> str:
    """The message of an error of faiss, on one line and without its C++ source position."""
    return " ".join(str(error).split()).rpartition("rror: ")[2][:200]


@contextmanager
def use_threads(threads: int | None) -> Iterator[Any]:
    """The module `faiss`, computing with `threads` OpenMP threads inside the block (None: as many
    as it has now).

    OpenMP keeps the count per calling thread, so it is set where the work is called, never once at
    start-up.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    if threads is not None:
        faiss.omp_set_num_threads(threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)
