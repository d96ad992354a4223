"""Packages of ours that a user's own `transforms` or `pipelines` hides from Python."""

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

HOME = Path(__file__).resolve().parents[1]
PACKAGES = ("pipelines", "transforms")


class HiddenPackageError(ImportError):
    """Another module is found under the name of one of our packages."""


def check_packages() -> None:
    """Raise HiddenPackageError if Python finds another `pipelines` or `transforms` than those
    beside this package.

    If nobody catches it, Python prints the one line without a traceback, because no line of any
    program is wrong.
    """
    for name in PACKAGES:
        found = _place_of(name)
        if found is not None and found != HOME / name:
            sys.excepthook = partial(_print_line, sys.excepthook)
            raise HiddenPackageError(
                f"{found} hides sentence-beam's own {HOME / name}; rename it, or keep its folder"
                " off Python's path (run from another folder, look at PYTHONPATH)"
            )


def _place_of(name: str) -> Path | None:
    """Return the folder of a package or the file of a module; None if Python cannot find it."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # made up by a program, from no file
        return None
    if spec is None:
        return None
    # a package's, also of one without __init__.py
    folders = list(spec.submodule_search_locations or ())
    place = folders[0] if folders else spec.origin
    return Path(place).resolve() if place else None


def _print_line(
    others: Callable[..., Any],
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
) -> None:
    if isinstance(error, HiddenPackageError):
        print(f"sentence-beam: {error}", file=sys.stderr)
    else:
        others(kind, error, traceback)
