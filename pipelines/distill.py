"""`sentence-beam distill`: a static model, which `embed` runs as fast as it tokenizes."""

import argparse
import sys
from typing import Any

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.training.distill_options import (
    WORDS,
    DistillOptions,
    check_installed,
    check_output,
)


def parser() -> argparse.ArgumentParser:
    """The options of `distill`."""
    return options.command(
        "distill",
        "Make a table of token embeddings of a sentence encoder, which embeds without running it.",
        "sentence-beam distill --model minilm --dim 256 --output fast",
        "sentence-beam distill --model my-model --input 'corpus/*.parquet' --dim 128 --output fast",
        "sentence-beam embed --model fast --input 'corpus/*.parquet' --store store",
        kind=DistillOptions,
    )


def _distill(options: DistillOptions) -> CommandOutput:
    if options.input is None and options.words != WORDS:
        raise OptionError(
            f"{cite('words')} says how many words of a corpus become tokens; name its files by"
            f" {cite('input')}"
        )
    check_installed()
    check_output(options)
    with with_stdin(options, local=True) as options:
        from sentence_beam.transforms.training.distillation import distill

        record = distill(options)
    return CommandOutput(describe_model(record), record)


def describe_model(record: dict[str, Any]) -> list[str]:
    """Return the closing lines, one fact a line."""
    output = record["options"]["output"]
    lost = f", {record['rejected']:,} rejected" if record["rejected"] else ""
    size = f"{record['bytes'] / 1e6:,.1f} MB"
    words = []
    if record["data"]:
        words = [
            format_summary_line(
                "words", f"{record['words']:,} new ones of {record['rows']:,} rows{lost}"
            )
        ]
    return [
        *words,
        format_summary_line(
            "tokens", f"{record['tokens']:,} of {record['dim']} dimensions, {size}"
        ),
        format_summary_line("space", record["space"][:16]),
        format_summary_line("model", output),
        format_summary_line("use", f"sentence-beam embed --model {output}"),
    ]


distill = function("distill", DistillOptions, _distill)
main = command.main(parser, _distill, kind=DistillOptions)

if __name__ == "__main__":
    sys.exit(main())
