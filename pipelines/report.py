"""`sentence-beam report`: the runs as an HTML page, or the last one's figures for monitoring."""

import argparse
import sys

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_file, check_output, write_text
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.report.openmetrics import format_openmetrics
from sentence_beam.transforms.report.report_page import render_report
from sentence_beam.transforms.report.run_history import read_known_summaries, read_summaries
from sentence_beam.transforms.steps.options.store import PAGE, ReportOptions
from sentence_beam.transforms.store import open_store


def parser() -> argparse.ArgumentParser:
    """The options of `report`."""
    return options.command(
        "report",
        "Write the nights of a store as one HTML page, with plots and tables, or the figures of the"
        " last one as OpenMetrics text.",
        "sentence-beam report --store store --output nights.html",
        "sentence-beam report --store store --format openmetrics",
        kind=ReportOptions,
    )


def _report(options: ReportOptions) -> CommandOutput:
    output = options.output
    if options.format == PAGE:
        output = output or "report.html"
        check_output(output, (".html",))
    elif output:
        check_file(output)
    store = open_store(options.store)
    root = store.root
    summaries = read_summaries(root, read_known_summaries(root))
    if options.format == PAGE:
        text = render_report(root, summaries, store.manifest, options.price_per_hour)
    else:
        text = format_openmetrics(root, summaries)
    if output is None:
        return CommandOutput(
            [text.removesuffix("\n")],
            {"store": root, "runs": len(summaries), "text": text},
            always=True,
        )
    write_text(output, text)
    return CommandOutput(
        [f"{format_count(len(summaries), 'run')} in {output}"],
        {"store": root, "runs": len(summaries), "output": output},
    )


report = function("report", ReportOptions, _report)
main = command.main(parser, _report, kind=ReportOptions)

if __name__ == "__main__":
    sys.exit(main())
