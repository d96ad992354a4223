"""`sentence-beam serve`: a store as a page to try it, and as answers in JSON."""

import argparse
import sys

from pipelines import command, options
from pipelines.progress import aside, news, unwatched
from pipelines.said import Said
from transforms.errors import MissingExtraError
from transforms.extras import pip_line
from transforms.search import NO_QUERY_PROMPT

HOST, PORT = "127.0.0.1", 8000


def parser() -> argparse.ArgumentParser:
    """The options of `serve`."""
    p = options.command(
        "serve",
        "Serve the current snapshot of a store: a page to search it, and the same as JSON. It is for trying a store "
        "and for a team's inner use: there is no login and no encryption.",
        "sentence-beam serve --store store",
        "sentence-beam serve --store gs://bucket/store --host 0.0.0.0 --port 8080 --project p",
    )
    options.add_store(p)
    p.add_argument(
        "--host",
        type=options.filled,
        default=HOST,
        metavar="HOST",
        help=f"address to listen at; another than this machine's own lets others in (default: {HOST})",
    )
    p.add_argument(
        "--port",
        type=options.port,
        default=PORT,
        metavar="N",
        help=f"port to listen at; 0 takes a free one (default: {PORT})",
    )
    p.add_argument(
        "--query-prompt", metavar="STR", help="text put before every query (default: the store's, else the model's own)"
    )
    p.add_argument(
        "--model", metavar="PATH", help="the store's model on this machine, checked by digest (default: where it was)"
    )
    return p


def _serve(args: argparse.Namespace) -> Said:
    try:
        from transforms.serve.app import Application
        from transforms.serve.followed import Followed
        from transforms.serve.server import address_of, bound, is_loopback, serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "h11", "anyio"):
            raise
        raise MissingExtraError(
            f"serve needs starlette and uvicorn, which are not installed: {pip_line('serve')}"
        ) from error
    with bound(args.host, args.port) as listening:
        served = Followed(args.store, args.model, args.query_prompt)
        if served.searcher.queries.lacks_prompt:
            aside(f"note: {NO_QUERY_PROMPT}")
        address, application = address_of(listening), Application(served)
        if not is_loopback(listening):
            aside(f"note: whoever reaches {address} can read every row of {served.manifest.root}; there is no login")
        with unwatched():
            serve(application, listening, lambda: news(f"{served.manifest.root} is at {address} (Ctrl-C ends)"))
        requests = sum(application.counts.requests.values())
        values = {"store": served.manifest.root, "address": address, "requests": requests}
        return Said([f"ended after {requests:,} requests"], values)


main = command.main(parser, _serve)

if __name__ == "__main__":
    sys.exit(main())
