"""Imports without a search for garbage."""

import gc

import pytest

from transforms.base.imports import uncollected


def test_nothing_is_collected_inside_and_all_is_as_before_outside() -> None:
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_import_that_fails_ends_it_too() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


def test_who_does_not_collect_is_not_made_to() -> None:
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
