"""Commands that run in threads, or in a pipeline if a runner is named; only then Beam is loaded."""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.common import command
from sentence_beam.pipelines.common.command_output import CommandOutput

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[Any, ...]:
    """Parse our options, and Beam's if a runner is named."""
    if not any(word.split("=")[0] == "--runner" for word in argv):
        return (*command.parse_own_flags(parser, argv), None)
    from sentence_beam.pipelines.common import beam_flags

    return beam_flags.parse(parser, argv)


def make_function(
    job: Callable[[Any, "PipelineOptions | None"], CommandOutput],
) -> Callable[[Any], CommandOutput]:
    """Return a command for a call from Python, whose options may have `beam_flags`."""

    def call(options: Any) -> CommandOutput:
        if not options.beam_flags:
            return job(options, None)
        from sentence_beam.pipelines.common.beam_flags import parse_list

        return job(options, parse_list(options.beam_flags))

    return call
