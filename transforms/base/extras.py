"""Packages of the extras, and the command that installs an extra from this project's clone.

No package index has the project.
"""

import contextlib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from sentence_beam.transforms.base.errors import MissingExtraError

CONSTRAINTS = "constraints.txt"
_HOME = Path(__file__).resolve().parents[2]


def require_package(package: str, extra: str, user: str) -> None:
    """Raise MissingExtraError if a package of an extra, which `user` needs, is not installed."""
    if importlib.util.find_spec(package) is None:
        raise _make_missing_error(package, extra, user)


@contextlib.contextmanager
def requiring_extra(extra: str, user: str) -> Iterator[None]:
    """Raise MissingExtraError if the body imports a package of an extra that is not installed."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "a package").partition(".")[0]
        raise _make_missing_error(package, extra, user) from error


def _make_missing_error(package: str, extra: str, user: str) -> MissingExtraError:
    return MissingExtraError(
        f"{user} needs {package}, which is not installed; {format_pip_line(extra)}"
    )


def format_pip_line(extra: str, home: Path = _HOME) -> str:
    """Return the command that installs an extra into this Python, with the tested versions.

    It works in any folder if this code is in a clone, else only in a clone.
    """
    if not (home / CONSTRAINTS).is_file():
        return f"pip install -c {CONSTRAINTS} '.[{extra}]' in a clone of sentence-beam"
    folder = Path() if Path.cwd() == home else home
    constraints = shlex.quote(str(folder / CONSTRAINTS))
    return f"{_find_pip()} install -c {constraints} {shlex.quote(f'{folder}[{extra}]')}"


def _find_pip() -> str:
    """Return this Python's pip, which may not be the first one on the shell's path."""
    path = shutil.which("pip")
    if path is not None and os.path.dirname(path) == os.path.dirname(sys.executable):
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"
