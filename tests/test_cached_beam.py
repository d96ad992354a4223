"""Tests have Beam as users have it, but in the modules that ask for a Beam that keeps what it works out."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.transforms import userstate
from helpers import eager
from helpers.cached_beam import CHECKED_WITH, cached_beam


def test_beam_is_as_it_was_installed() -> None:
    assert PipelineOptions.view_as.__module__ == PipelineOptions.__module__
    assert not hasattr(PipelineOptions.view_as, "cache_info")
    assert not hasattr(userstate.get_dofn_specs, "cache_info")


def test_the_cache_is_known_to_fit_this_beam() -> None:
    assert beam.__version__ == CHECKED_WITH, "see what helpers/cached_beam.py patches in it, and name it there"


def test_cached_views_are_kept_and_have_the_same_values() -> None:
    with cached_beam():
        options, other = PipelineOptions(["--runner=FnApiRunner"]), PipelineOptions(["--runner=FlinkRunner"])
        options.view_as(TypeOptions).runtime_type_check = True
        assert options.view_as(TypeOptions).runtime_type_check
        assert not other.view_as(TypeOptions).runtime_type_check
        assert options.view_as(StandardOptions) is options.view_as(StandardOptions)
        assert options.view_as(StandardOptions).runner == "FnApiRunner"
        assert other.view_as(StandardOptions).runner == "FlinkRunner"
        assert sorted(eager.run(beam.Map(str), [1, 2])) == ["1", "2"]
    assert not hasattr(PipelineOptions.view_as, "cache_info")
