"""The line that installs an extra: it names a clone that there is, and this Python's pip."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from sentence_beam.transforms.base.extras import CONSTRAINTS, format_pip_line

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pip beside this Python, first on the shell's path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "pip").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder))
    return "pip"


def test_in_the_clone_it_is_the_line_of_the_readme(
    pip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert format_pip_line("serve") == "pip install -c constraints.txt '.[serve]'"


def test_elsewhere_it_names_the_clone(
    pip: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "a clone"
    home.mkdir()
    (home / CONSTRAINTS).touch()
    monkeypatch.chdir(tmp_path)
    assert shlex.split(format_pip_line("gcp", home)) == [
        "pip",
        "install",
        "-c",
        f"{home}/constraints.txt",
        f"{home}[gcp]",
    ]


def test_without_a_clone_it_says_that_one_is_needed(tmp_path: Path) -> None:
    assert format_pip_line("gcp", tmp_path).endswith(
        "constraints.txt '.[gcp]' in a clone of sentence-beam"
    )


def test_another_pip_on_the_path_is_not_used(pip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert format_pip_line("serve").startswith("/elsewhere/bin/python -m pip install -c ")


def test_no_message_or_page_tells_to_install_what_no_index_has() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    sources = [
        path
        for package in ("pipelines", "sentence_beam", "transforms")
        for path in (ROOT / package).rglob("*.py")
    ]
    assert [
        path
        for path in (*pages, *sources)
        if re.search(r"pip install 'sentence-beam(?!.* @ git\+URL')", path.read_text("utf8"))
    ] == []
