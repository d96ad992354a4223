"""Work that Beam does again and again, done once: for modules of tests that run many small pipelines.

Beam parses its flags five hundred times for one small pipeline, looks at the methods of every step five times, and at the
arguments of the same function 2,600 times: two thirds of the time of a run of forty rows.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate

CHECKED_WITH = "2.77.0"  # the Beam of which it is known that its runner changes no view and no specs that it is given

Arguments = tuple[list[str], list[Any]]


@contextlib.contextmanager
def cached_beam() -> Iterator[None]:
    """Beam keeps the views of options and the state and timer specs of a DoFn that it made last, and methods' arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipelineOptions, "view_as", functools.lru_cache(64)(PipelineOptions.view_as))
        patch.setattr(userstate, "get_dofn_specs", functools.lru_cache(64)(userstate.get_dofn_specs))
        patch.setattr(core, "get_function_args_defaults", _by_method(core.get_function_args_defaults))
        yield


def _by_method(arguments_of: Callable[[Any], Arguments]) -> Callable[[Any], Arguments]:
    """The same answers, kept for methods: those of one class have the same arguments, whose they ever are."""
    kept: dict[Any, Arguments] = {}

    def asked(function: Any) -> Arguments:
        method = getattr(function, "__func__", None)
        if method is None:
            return arguments_of(function)
        if method not in kept:
            kept[method] = arguments_of(function)
        names, defaults = kept[method]
        return list(names), list(defaults)

    return asked
