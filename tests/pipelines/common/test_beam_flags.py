"""Beam's options keep their views, and copies have their own."""

import copy

from apache_beam.options.pipeline_options import SetupOptions, StandardOptions

from sentence_beam.pipelines.common.beam_flags import make_pipeline_options


def test_views_are_made_once_and_share_values() -> None:
    options = make_pipeline_options(["--runner=FnApiRunner"])
    view = options.view_as(StandardOptions)
    assert options.view_as(StandardOptions) is view
    view.streaming = True
    assert options.view_as(StandardOptions).streaming
    assert view.view_as(SetupOptions).view_as(StandardOptions).streaming
    assert options.get_all_options()["streaming"]


def test_copies_have_their_own_values() -> None:
    options = make_pipeline_options(["--runner=FnApiRunner"])
    options.view_as(SetupOptions).save_main_session = False
    copied = copy.deepcopy(options)
    assert copied.view_as(SetupOptions).save_main_session is False
    copied.view_as(SetupOptions).save_main_session = True
    assert options.view_as(SetupOptions).save_main_session is False
