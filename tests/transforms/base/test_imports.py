"""Imports without a search for garbage."""

import gc
import sys
from types import ModuleType

import pytest

from sentence_beam.transforms.base.imports import pause_collector


def test_nothing_is_collected_inside_and_all_is_as_before_outside() -> None:
    with pause_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_import_that_fails_ends_it_too() -> None:
    with pytest.raises(ImportError), pause_collector():
        raise ImportError
    assert gc.isenabled()


def test_who_does_not_collect_is_not_made_to() -> None:
    gc.disable()
    try:
        with pause_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_objects_are_moved_only_by_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each freeze keeps what is garbage at that moment: a call for each file would leak memory."""
    moved: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: moved.append("all"))
    with pause_collector():
        pass
    assert not moved
    with pause_collector():
        monkeypatch.setitem(sys.modules, "imported_here", ModuleType("imported_here"))
    assert moved == ["all"]
