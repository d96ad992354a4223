"""`sentence-beam report`: the runs of a store as one HTML page."""

import argparse
import sys

from pipelines import command, options
from pipelines.output import check_output
from transforms.report.history import known_summaries, run_summaries
from transforms.report.page import page
from transforms.store import open_store


def parser() -> argparse.ArgumentParser:
    """The options of `report`."""
    p = options.command("report", "Write the nights of a store as one HTML page, with plots and tables.")
    options.add_store(p)
    p.add_argument(
        "--output",
        default="report.html",
        metavar="FILE",
        help="the page to write (default: report.html, in this folder)",
    )
    return p


def _report(args: argparse.Namespace) -> None:
    check_output(args.output, (".html",))
    root = open_store(args.store).root
    found = run_summaries(root, known_summaries(root))
    with open(args.output, "w", encoding="utf8") as f:
        f.write(page(root, found))
    print(f"{len(found)} runs in {args.output}")


main = command.main(parser, _report)

if __name__ == "__main__":
    sys.exit(main())
