"""The installed command: its console script as a process of its own, without the tests' paths."""

import os
import subprocess
import sys
from collections.abc import Iterable, Set
from importlib.metadata import Distribution, distributions
from pathlib import Path

from helpers.commands import Outcome

# `make test-command` names the console script of an installation that has the extra cpu alone
SCRIPT = Path(
    os.environ.get("SENTENCE_BEAM_COMMAND", Path(sys.executable).with_name("sentence-beam"))
)
KEPT = ("PATH", "LANG", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
SECONDS = 240


def has_package(name: str) -> bool:
    """Return whether the installation has a distribution."""
    return any(_distributions(_site_packages(SCRIPT), {name}))


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a user's shell with an empty home."""
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "HOME": str(home), "HF_HUB_OFFLINE": "1"}


def command(folder: Path, *arguments: object, script: Path = SCRIPT) -> Outcome:
    """Run the command in a folder; returns how it ended."""
    done = subprocess.run(
        [str(script), *map(str, arguments)],
        cwd=folder,
        env=environment(folder / "home"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def without_packages(folder: Path, names: Iterable[str]) -> Path:
    """Return the console script of an installation like the tested one, without distributions.

    Its site-packages are links to the tested ones.
    """
    source = _site_packages(SCRIPT)
    removed = {
        Path(os.path.normpath(str(file)))
        for distribution in _distributions(source, set(names))
        for file in distribution.files or ()
    }
    if not removed:
        return SCRIPT
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(SCRIPT.with_name("python").resolve())
    (folder / "pyvenv.cfg").write_text((SCRIPT.parents[1] / "pyvenv.cfg").read_text())
    parents = {parent for file in removed for parent in file.parents}
    _link(source, folder / source.relative_to(SCRIPT.parents[1]), Path(), removed, parents)
    script = folder / "bin/sentence-beam"
    _, rest = SCRIPT.read_text().split("\n", 1)
    script.write_text(f"#!{python}\n{rest}")
    script.chmod(0o755)
    return script


def _site_packages(script: Path) -> Path:
    (found,) = script.parents[1].glob("lib/python3.*/site-packages")  # any Python's
    return found


def _distributions(folder: Path, names: Set[str]) -> Iterable[Distribution]:
    return (
        distribution
        for distribution in distributions(path=[str(folder)])
        if distribution.metadata["Name"].lower() in names
    )


def _link(source: Path, target: Path, below: Path, removed: Set[Path], parents: Set[Path]) -> None:
    """Link the entries of `source / below` that are not removed; a folder is made for the first."""
    for entry in sorted((source / below).iterdir()):
        path = below / entry.name
        if path in parents:
            _link(source, target, path, removed, parents)
        elif path not in removed and entry.name != "__pycache__":
            (target / below).mkdir(parents=True, exist_ok=True)
            (target / path).symlink_to(entry)
