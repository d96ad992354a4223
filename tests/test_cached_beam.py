"""Tests have Beam as users have it, but in the modules that ask for a Beam that keeps what it works
out.
"""

from collections.abc import Callable
from contextlib import nullcontext

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.typehints.decorators import IOTypeHints
from helpers import eager
from helpers.cached_beam import CHECKED_WITH, cached_beam


def test_beam_is_as_it_was_installed() -> None:
    assert PipelineOptions.view_as.__module__ == PipelineOptions.__module__
    assert not hasattr(PipelineOptions.view_as, "cache_info")
    assert not hasattr(userstate.get_dofn_specs, "cache_info")


def test_the_cache_is_known_to_fit_this_beam() -> None:
    assert beam.__version__ == CHECKED_WITH, (
        "see what helpers/cached_beam.py patches in it, and name it there"
    )


def test_cached_views_are_kept_and_have_the_same_values() -> None:
    with cached_beam():
        options, other = (
            PipelineOptions(["--runner=FnApiRunner"]),
            PipelineOptions(["--runner=FlinkRunner"]),
        )
        options.view_as(TypeOptions).runtime_type_check = True
        assert options.view_as(TypeOptions).runtime_type_check
        assert not other.view_as(TypeOptions).runtime_type_check
        assert options.view_as(StandardOptions) is options.view_as(StandardOptions)
        assert options.view_as(StandardOptions).runner == "FnApiRunner"
        assert other.view_as(StandardOptions).runner == "FlinkRunner"
        assert sorted(eager.run(beam.Map(str), [1, 2])) == ["1", "2"]
    assert not hasattr(PipelineOptions.view_as, "cache_info")


class Counts(beam.DoFn):
    SEEN = ReadModifyWriteStateSpec("seen", beam.coders.VarIntCoder())

    def process(self, pair, seen=beam.DoFn.StateParam(SEEN)):  # type: ignore[no-untyped-def]  # noqa: B008
        seen.write((seen.read() or 0) + 1)
        yield pair[0], seen.read()


def annotated(kind: type) -> Callable[[object], object]:
    def same(value):  # type: ignore[no-untyped-def]
        return value

    same.__annotations__ = {"value": kind, "return": kind}
    return same


def test_what_is_kept_of_functions_and_steps_is_their_own() -> None:
    found = []
    for context in (nullcontext, cached_beam, cached_beam):
        with context():
            hints = [IOTypeHints.from_callable(annotated(kind)) for kind in (int, str, int)]
            specs = [
                {spec.name for spec in userstate.get_dofn_specs(dofn)[0]}
                for dofn in (Counts(), beam.DoFn())
            ]
            arguments = [
                core.get_function_args_defaults(f)
                for f in (lambda a, b=1: a, lambda a, b=2: a, lambda a: a)
            ]
            found.append(([(h.input_types, h.output_types) for h in hints if h], specs, arguments))
    assert found[0] == found[1] == found[2]
    assert found[0][1] == [{"seen"}, set()]
    with cached_beam():
        assert sorted(eager.run(beam.ParDo(Counts()), [("a", 1), ("b", 1), ("a", 2)])) == [
            ("a", 1),
            ("a", 2),
            ("b", 1),
        ]
