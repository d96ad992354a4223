"""How an extra of this project is installed: from its clone, since no index of packages has it."""

import os
import shlex
import shutil
import sys
from pathlib import Path

CONSTRAINTS = "constraints.txt"
_HOME = Path(__file__).resolve().parents[2]


def pip_line(extra: str, home: Path = _HOME) -> str:
    """Return the command that installs an extra into this Python, with the versions that the
    project is tested with.

    It works in any folder if this code is that of a clone, else in a clone.
    """
    if not (home / CONSTRAINTS).is_file():
        return f"pip install -c {CONSTRAINTS} -e '.[{extra}]' in a clone of sentence-beam"
    here = Path.cwd() == home
    constraints, package = (CONSTRAINTS, ".") if here else (str(home / CONSTRAINTS), str(home))
    return f"{_pip()} install -c {shlex.quote(constraints)} -e {shlex.quote(f'{package}[{extra}]')}"


def _pip() -> str:
    """The pip of this Python, which need not be the first one on the shell's path."""
    found = shutil.which("pip")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"
