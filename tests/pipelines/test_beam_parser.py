"""The private names of Beam by which its flags are known."""

from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common.beam_parser import make_beam_parser
from sentence_beam.transforms.base.errors import OptionError

CHECKED = (
    # after looking at _BeamArgumentParser and at PipelineOptions.__init__ of a newer Beam: write it
    # here
    "2.77.0"
)


class OwnOptions(PipelineOptions):
    """What somebody adds to Beam's flags."""

    @classmethod
    def _add_argparse_args(cls, parser) -> None:
        parser.add_argument("--own_flag")
        parser.add_value_provider_argument("--own_later")


def test_the_flags_are_those_that_beam_takes() -> None:
    given = [
        "--runner=FlinkRunner",
        "--project",
        "p",
        "--flink_master=f:1",
        "--own_flag=1",
        "--own_later=2",
    ]
    args, rest = make_beam_parser().parse_known_args([*given, "--no_such_flag", "x"])
    assert rest == ["--no_such_flag", "x"]
    taken = PipelineOptions(given).get_all_options()
    for name in ("runner", "project", "flink_master", "own_flag"):
        assert getattr(args, name) == taken[name]


def test_a_mistake_is_an_error_as_ours_are() -> None:
    with pytest.raises(OptionError, match="parallelism"):
        make_beam_parser().parse_known_args(["--parallelism=many"])


def test_no_flag_is_taken_for_the_beginning_of_another() -> None:
    assert make_beam_parser().parse_known_args(["--runne", "x"])[1] == ["--runne", "x"]


def test_the_pinned_beam_is_the_version_whose_source_was_read() -> None:
    pins = (
        (Path(__file__).resolve().parents[2] / "constraints.txt").read_text(encoding="utf8").split()
    )
    assert f"apache-beam=={CHECKED}" in pins
