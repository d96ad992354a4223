"""Packages of a user that hide ours from Python."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sentence_beam.hidden import HOME, HiddenPackageError, check_packages


@pytest.fixture(autouse=True)
def hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put Python's own hook for errors back after each test."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def put_first(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let Python look into a folder first, and forget which packages it has found."""
    monkeypatch.syspath_prepend(str(folder))
    for name in ("pipelines", "transforms"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_our_own_packages_are_found() -> None:
    check_packages()


@pytest.mark.parametrize(
    "file", ["transforms.py", "transforms/__init__.py", "pipelines/__init__.py"]
)
def test_another_package_is_named_with_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    place = path if path.parent == tmp_path else path.parent
    put_first(monkeypatch, tmp_path)
    with pytest.raises(HiddenPackageError) as raised:
        check_packages()
    assert str(raised.value).startswith(f"{place} hides sentence-beam's own {HOME}")
    sys.excepthook(HiddenPackageError, raised.value, None)
    assert capsys.readouterr().err == f"sentence-beam: {raised.value}\n"


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: seen.append(kind))
    (tmp_path / "transforms.py").write_text("")
    put_first(monkeypatch, tmp_path)
    with pytest.raises(HiddenPackageError):
        check_packages()
    sys.excepthook(ValueError, ValueError("another"), None)
    assert seen == [ValueError]


def test_modules_that_a_program_made_up_or_that_are_not_there_hide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transforms", ModuleType("transforms"))
    monkeypatch.delitem(sys.modules, "pipelines", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", _missing_or_made_up)
    check_packages()


def _missing_or_made_up(name: str) -> importlib.machinery.ModuleSpec | None:
    if name == "transforms":
        raise ValueError("transforms.__spec__ is None")
    return None
