"""`sentence-beam serve`: a search page for a store, and answers in JSON."""

import argparse
import sys

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.progress import hiding_progress, print_aside, print_news
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.search import Copies
from sentence_beam.transforms.steps.options.search_options import ServeOptions


def parser() -> argparse.ArgumentParser:
    """The options of `serve`."""
    return options.command(
        "serve",
        "Serve the current snapshot of a store: a page to search it, and the same as JSON. It is"
        " for trying a store and for a team's inner use: there is no login and no encryption.",
        "sentence-beam serve --store store",
        "sentence-beam serve --store gs://bucket/store --host 0.0.0.0 --port 8080 --project p",
        kind=ServeOptions,
    )


def _serve(options: ServeOptions) -> CommandOutput:
    for package in ("starlette", "uvicorn"):
        require_package(package, "serve", "serve")
    from sentence_beam.transforms.serve.app import Application
    from sentence_beam.transforms.serve.followed import Followed
    from sentence_beam.transforms.serve.server import bound, find_address, is_loopback, serve

    with bound(options.host, options.port) as listening:
        served = Followed(
            options.store,
            options.model,
            options.query_prompt,
            options.where,
            options.snapshot,
            Copies(options.local),
        )
        if note := served.searcher.queries.prompt_note:
            print_aside(f"note: {note}")
        address = find_address(listening)
        application = Application(served, root_path=options.root_path)
        if not is_loopback(listening):
            print_aside(
                f"note: whoever reaches {address} can read every row of {served.manifest.root};"
                " there is no login"
            )
        with hiding_progress():
            serve(
                application,
                listening,
                lambda: print_news(f"{served.manifest.root} is at {address} (Ctrl-C ends)"),
            )
        requests = application.counts.answered
        values = {"store": served.manifest.root, "address": address, "requests": requests}
        return CommandOutput([f"ended after {requests:,} requests"], values)


serve = function("serve", ServeOptions, _serve)
main = command.main(parser, _serve, kind=ServeOptions)

if __name__ == "__main__":
    sys.exit(main())
