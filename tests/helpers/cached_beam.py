"""Work that Beam does again and again, done once: for modules of tests that run many small
pipelines.

For one small pipeline Beam parses its flags five hundred times, looks at the methods of every step
five times and at the arguments of the same function 2,600 times, reads the annotations of its own
functions 240 times and their source code, and keeps where each type hint was made, for errors that
it does not raise: three quarters of the time of a run of forty rows.
"""

import argparse
import bz2
import contextlib
import copy
import functools
import logging
import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate
from apache_beam.typehints import trivial_inference, typehints
from apache_beam.typehints.decorators import IOTypeHints

# the Beam of which it is known that its runner changes no view and no specs that it is given
CHECKED_WITH = "2.77.0"

SAID = {"__wrapped__", "__signature__", "_beam_no_annotations"}


@contextlib.contextmanager
def cached_beam() -> Iterator[None]:
    """Beam keeps its last views of options, and what it finds out about functions and DoFns; it
    packs steps quickly.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipelineOptions, "view_as", functools.lru_cache(64)(PipelineOptions.view_as))
        patch.setattr(PipelineOptions, "_visible_option_list", names_of)
        patch.setattr(PipelineOptions, "__init__", _made)
        patch.setattr(PipelineOptions, "get_all_options", _all_options)
        patch.setattr(typehints, "is_consistent_with", is_consistent)
        patch.setattr(trivial_inference, "infer_return_type_func", return_type_of)
        patch.setattr(userstate, "get_dofn_specs", specs_of)
        patch.setattr(core, "get_function_args_defaults", arguments_of)
        patch.setattr(core, "_check_fn_use_yield_and_return", mixes_yield_and_return)
        patch.setattr(IOTypeHints, "from_callable", staticmethod(hints_of))
        patch.setattr(argparse, "_", str)  # else it looks for translations of each message
        patch.setattr(IOTypeHints, "_make_origin", staticmethod(lambda *_, **__: []))
        patch.setattr(pickler, "roundtrip", _copied(pickler.roundtrip))
        patch.setattr(
            cloudpickle_pickler, "bz2", SimpleNamespace(compress=_packed, decompress=bz2.decompress)
        )
        yield


def _packed(data: bytes, compresslevel: int) -> bytes:
    """What Beam's own packing of any level can be read by, with the least work."""
    return bz2.compress(data, 1)


def _copied(roundtrip: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same copies by packing and unpacking, but for side inputs where there are none."""
    return lambda what: (
        type(what)() if type(what) in (list, dict, tuple) and not what else roundtrip(what)
    )


def _kept(
    key_of: Callable[[Any], Hashable], asked_of: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """The same answers, kept by a key; what has none is asked anew each time."""
    kept: dict[Hashable, Any] = {}

    def asked(what: Any) -> Any:
        key = key_of(what)
        if key is None:
            return asked_of(what)
        if key not in kept:
            kept[key] = asked_of(what)
        return kept[key]

    return asked


def _class_of(dofn: Any) -> Hashable:
    """The class of a DoFn, whose methods are those of its class alone."""
    return (
        None
        if any(isinstance(value, types.MethodType) for value in vars(dofn).values())
        else type(dofn)
    )


def _code_of(function: Any) -> Hashable:
    return getattr(function, "__code__", None)


def _annotated(function: Any) -> Hashable:
    """All that the annotations of a plain function or method depend on."""
    plain = getattr(function, "__func__", function)
    if not _plain(plain):
        return None
    annotations = tuple(plain.__annotations__.items())
    try:
        hash(annotations)
    except TypeError:
        return None
    return plain.__code__, plain is function, annotations


def _method_or_code(function: Any) -> Hashable:
    """What decides the arguments: the method, whose it ever is; the code of a plain function
    without defaults.
    """
    method = getattr(function, "__func__", None)
    if (
        method is not None
        or not _plain(function)
        or function.__defaults__
        or function.__kwdefaults__
    ):
        return method
    return function.__code__


def _plain(function: Any) -> bool:
    """Whether it is a function that says by itself what it takes, and that does not tell Beam to
    look away.
    """
    return isinstance(function, types.FunctionType) and SAID.isdisjoint(vars(function))


_made_by_beam = PipelineOptions.__init__
_consistent_for_beam = typehints.is_consistent_with


@functools.lru_cache(256)
def _parsed(kind: type[PipelineOptions], flags: tuple[str, ...]) -> argparse.Namespace:
    """The options of a class that flags give."""
    options = object.__new__(kind)
    _made_by_beam(options, flags)
    return options._visible_options


def _made(self: PipelineOptions, flags: Sequence[str] | None = None, **given: Any) -> None:
    """Options as Beam makes them, from flags that are parsed once."""
    if flags is None or isinstance(flags, str):
        _made_by_beam(self, flags, **given)
        return
    logging.basicConfig()
    self._flags = flags
    self._visible_options = copy.deepcopy(_parsed(type(self), tuple(flags)))
    self._all_options = {**vars(self._visible_options), **given}


_all_for_beam = PipelineOptions.get_all_options
_warned: set[Hashable] = set()


def _all_options(self: PipelineOptions, *args: Any, **given: Any) -> dict[str, Any]:
    """All options as Beam gives them; a pipeline that only wants warnings of its flags gets them
    once in a process.
    """
    if given.get("display_warnings"):
        flags = tuple(self._flags)
        if flags in _warned:
            return {}
        _warned.add(flags)
    return _all_for_beam(self, *args, **given)


_inferred_by_beam = trivial_inference.infer_return_type_func
_kept_return_types: dict[Hashable, Any] = {}


def return_type_of(function: Any, types_given: Any, debug: bool = False, depth: int = 0) -> Any:
    """The return type that Beam infers, kept for functions that have nothing but their code."""
    bare = isinstance(function, types.FunctionType) and not function.__closure__
    if (
        not bare
        or function.__defaults__
        or function.__kwdefaults__
        or not all(isinstance(kind, Hashable) for kind in types_given)
    ):
        return _inferred_by_beam(function, types_given, debug, depth)
    key = function.__code__, tuple(types_given), depth
    if key not in _kept_return_types:
        _kept_return_types[key] = _inferred_by_beam(function, types_given, debug, depth)
    return _kept_return_types[key]


_kept_consistency = functools.lru_cache(4096)(_consistent_for_beam)


def is_consistent(sub: Any, base: Any, use_beartype: bool | None = None) -> bool:
    """Whether one type hint is consistent with another, as Beam says."""
    try:
        return _kept_consistency(sub, base, use_beartype)
    except TypeError:  # hints that cannot be hashed
        return _consistent_for_beam(sub, base, use_beartype)


# What Beam finds out, kept as long as the process runs.
names_of = _kept(type, PipelineOptions._visible_option_list)
specs_of = _kept(_class_of, userstate.get_dofn_specs)
mixes_yield_and_return = _kept(_code_of, core._check_fn_use_yield_and_return)
hints_of = _kept(_annotated, IOTypeHints.from_callable)
_arguments_of = _kept(_method_or_code, core.get_function_args_defaults)


def arguments_of(function: Any) -> tuple[list[str], list[Any]]:
    """The names and defaults of a function's arguments, in lists that who asks may change."""
    names, defaults = _arguments_of(function)
    return list(names), list(defaults)
