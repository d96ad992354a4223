"""`sentence-beam report`: the nights of a store as one page."""

import argparse
import sys
from collections.abc import Sequence

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return command.run_command("report", _report, argv)


def _report(argv: list[str]) -> int:
    args = command.parse(parser(), argv)
    check_output(args.output, (".html",))
    root = open_store(args.store).root
    found = run_summaries(root, known_summaries(root))
    with open(args.output, "w", encoding="utf8") as f:
        f.write(page(root, found))
    print(f"{len(found)} runs in {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
