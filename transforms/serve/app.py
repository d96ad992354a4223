"""The application: its routes and their answers."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sentence_beam.transforms.report.report_page import render_report as report_page
from sentence_beam.transforms.report.run_history import read_known_summaries, read_summaries
from sentence_beam.transforms.serve.followed import EVERY, Followed
from sentence_beam.transforms.serve.guard import LOOPBACK, POLICY, Guard
from sentence_beam.transforms.serve.http_answers import as_json, choose_status, make_error_response
from sentence_beam.transforms.serve.question import RefusedError, parse_parameters, parse_question
from sentence_beam.transforms.serve.question_batches import Batches
from sentence_beam.transforms.serve.server_metrics import TYPE, Counts
from sentence_beam.transforms.serve.try_page import Form, render_page, render_style

REPORT_FOR = 30.0  # seconds that a report is kept
STOPPED_WITHIN = 5.0  # seconds to finish a look at the store when the server ends
INLINE_STYLE = POLICY.replace("style-src 'self'", "style-src 'unsafe-inline'")


class Application:
    """The answers of a server to requests about one store."""

    def __init__(self, served: Followed, every: float = EVERY, root_path: str = ""):
        """`every` is the time between looks at the store, in seconds.

        `root_path` is the path of the server behind a proxy, without a slash at the end.
        """
        self._served = served
        self._root_path = root_path
        self._every = every
        self.counts = Counts()
        self._batches = Batches(served.answers, self.counts.batch)
        self._report: tuple[float, str] | None = None
        self._reporting = threading.Lock()
        self._routes: dict[str, Callable[[Request], Any]] = {
            "/": self.page,
            "/search": self._answer("q"),
            "/similar": self._answer("id"),
            "/report": self.report,
            "/healthz": self.health,
            "/metrics": self.metrics,
            "/style.css": self.style,
        }

    def asgi(self, loopback: bool = True) -> ASGIApp:
        """Return the ASGI application.

        On `loopback` it answers only requests sent to this machine's own names.
        """
        app = Starlette(
            routes=[Route(path, endpoint) for path, endpoint in self._routes.items()],
            exception_handlers={HTTPException: self._refuse_unknown},
            lifespan=self._running,
        )
        names = LOOPBACK if loopback else None
        return Guard(app, self._routes, self.counts, names, self._root_path)

    @contextlib.asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """Answer questions and follow the store while the context is open."""
        stop = threading.Event()
        follower = threading.Thread(
            target=self._served.follow, args=(stop, self._every), daemon=True
        )
        follower.start()
        answering = asyncio.create_task(self._batches.run())
        try:
            yield
        finally:
            stop.set()
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
            await asyncio.to_thread(follower.join, STOPPED_WITHIN)

    def _answer(self, kind: str) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of hits as JSON, for questions by `kind`: q or id."""

        async def endpoint(request: Request) -> Response:
            try:
                return as_json({"hits": await self._find_hits(request, kind)})
            except Exception as error:
                return make_error_response(error)

        return endpoint

    async def _find_hits(self, request: Request, kind: str) -> list[dict[str, Any]]:
        """Return the hits for a request, each with its text, None if the store keeps none."""
        hits = await self._batches.ask(
            parse_question(parse_parameters(request.scope["query_string"]), kind)
        )
        text = self._served.searcher.rows.text_field or ""
        return [
            {
                "rank": hit["rank"],
                "id": hit["id"],
                "score": hit["score"],
                "text": hit.get(text),
                **hit,
            }
            for hit in hits
        ]

    async def page(self, request: Request) -> Response:
        """Return the page, with hits if its form is filled in."""
        form = Form()
        hits = None
        like = None
        try:
            parameters = dict(parse_parameters(request.scope["query_string"]))
            form = Form(*(parameters.get(name, "") for name in Form._fields))
            if "id" in parameters:
                hits = await self._find_hits(request, "id")
                like = await asyncio.to_thread(self._read_row, form.id)
            elif parameters:
                hits = await self._find_hits(request, "q")
            return HTMLResponse(
                await asyncio.to_thread(
                    render_page, self._served, form, hits, like=like, root_path=self._root_path
                )
            )
        except Exception as error:
            status, line = choose_status(error)
            content = render_page(self._served, form, error=line, root_path=self._root_path)
            return HTMLResponse(content, status)

    def _read_row(self, name: str) -> dict[str, Any]:
        """Return the row that has an id, with its text, None if the store keeps none."""
        rows = self._served.searcher.rows
        row = rows.read_first_with_id(name)
        return {"text": row.get(rows.text_field or ""), **row}

    def report(self, _: Request) -> Response:
        """Return the report of the store's runs; it is made at most twice a minute, in a thread."""
        try:
            with self._reporting:
                if self._report is None or time.monotonic() - self._report[0] > REPORT_FOR:
                    manifest = self._served.manifest
                    summaries = read_summaries(manifest.root, read_known_summaries(manifest.root))
                    self._report = time.monotonic(), report_page(manifest.root, summaries, manifest)
                return HTMLResponse(
                    self._report[1], headers={"Content-Security-Policy": INLINE_STYLE}
                )
        except Exception as error:
            return make_error_response(error)

    async def health(self, _: Request) -> Response:
        """Return the snapshot that is served, and why it may not be the current one."""
        manifest = self._served.manifest
        state = {"status": "ok"}
        if self._served.problem:
            state = {"status": "stale", "problem": self._served.problem}
        return as_json(
            {**state, "store": manifest.root, "run": manifest.run, "rows": manifest.rows.stored}
        )

    async def metrics(self, _: Request) -> Response:
        """Return the figures for Prometheus."""
        text = self.counts.text(self._served, len(self._batches))
        return Response(text, headers={"Content-Type": TYPE})

    async def style(self, _: Request) -> Response:
        """Return the style sheet."""
        return Response(render_style(), media_type="text/css")

    async def _refuse_unknown(self, request: Request, error: Exception) -> Response:
        """Return the answer to an unknown path or method."""
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            routes = ", ".join(self._routes)
            line = f"there is no {request.url.path[:100]}; there are {routes}"
            return make_error_response(RefusedError(404, line))
        line = f"{request.method} is not answered; ask by GET"
        return make_error_response(HTTPException(error.status_code, line, error.headers))
