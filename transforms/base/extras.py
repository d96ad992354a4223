"""The command that installs an extra of this project from its clone; no package index has it."""

import os
import shlex
import shutil
import sys
from pathlib import Path

CONSTRAINTS = "constraints.txt"
_HOME = Path(__file__).resolve().parents[2]


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
