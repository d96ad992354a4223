"""`sentence-beam report`: the runs of a store as one HTML page, or the last one's figures for a monitoring system."""

import argparse
import sys

from pipelines import command, options
from pipelines.output import check_file, check_output, write_text
from pipelines.said import Said
from transforms.report.history import known_summaries, run_summaries
from transforms.report.openmetrics import openmetrics
from transforms.report.page import page
from transforms.store import open_store


def parser() -> argparse.ArgumentParser:
    """The options of `report`."""
    p = options.command(
        "report",
        "Write the nights of a store as one HTML page, with plots and tables, or the figures of the last one as "
        "OpenMetrics text.",
        "sentence-beam report --store store --output nights.html",
        "sentence-beam report --store store --format openmetrics",
    )
    options.add_store(p)
    p.add_argument(
        "--format",
        choices=("html", "openmetrics"),
        default="html",
        help="html: a page; openmetrics: text for a monitoring system, of the last run (default: html)",
    )
    p.add_argument(
        "--output",
        metavar="FILE",
        help="the file to write (default: report.html in this folder; openmetrics is printed)",
    )
    return p


def _report(args: argparse.Namespace) -> Said:
    output = args.output or ("report.html" if args.format == "html" else None)
    if args.format == "html":
        check_output(output, (".html",))
    elif output:
        check_file(output)
    store = open_store(args.store)
    root = store.root
    found = run_summaries(root, known_summaries(root))
    text = page(root, found, store.manifest) if args.format == "html" else openmetrics(root, found)
    if output is None:
        return Said([text.removesuffix("\n")], {"store": root, "runs": len(found), "text": text}, asked=True)
    write_text(output, text)
    return Said([f"{len(found)} runs in {output}"], {"store": root, "runs": len(found), "output": output})


main = command.main(parser, _report)

if __name__ == "__main__":
    sys.exit(main())
