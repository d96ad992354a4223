"""The application: its routes, and what each answers."""

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

from transforms.report.history import known_summaries, run_summaries
from transforms.report.page import page as report_page
from transforms.serve.answers import as_json, said, status_of
from transforms.serve.batches import Batches
from transforms.serve.followed import EVERY, Followed
from transforms.serve.guard import LOOPBACK, POLICY, Guard
from transforms.serve.metrics import TYPE, Counts
from transforms.serve.page import Form, page, style
from transforms.serve.question import RefusedError, question

REPORT_FOR = 30.0  # seconds in which a report is not made again
STOPPED_WITHIN = 5.0  # seconds that a look at the store may go on when the server ends
INLINE_STYLE = POLICY.replace("style-src 'self'", "style-src 'unsafe-inline'")


class Application:
    """The answers of a server to requests about one store."""

    def __init__(self, served: Followed, every: float = EVERY):
        """`every`: seconds between looks at the store."""
        self._served, self._every = served, every
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
        """The application as servers run it; on `loopback` it answers requests to this machine's
        own names alone.
        """
        app = Starlette(
            routes=[Route(path, endpoint) for path, endpoint in self._routes.items()],
            exception_handlers={HTTPException: self._unknown},
            lifespan=self._running,
        )
        return Guard(app, self._routes, self.counts, LOOPBACK if loopback else None)

    @contextlib.asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """Answer questions and follow the store inside."""
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

    def _answer(self, asked: str) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of hits as JSON."""

        async def endpoint(request: Request) -> Response:
            try:
                return as_json({"hits": await self._hits(request, asked)})
            except Exception as error:
                return said(error)

        return endpoint

    async def _hits(self, request: Request, asked: str) -> list[dict[str, Any]]:
        """The hits that a request asks for, each with its text (None where the store keeps
        none).
        """
        hits = await self._batches.ask(question(request.query_params.multi_items(), asked))
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
        """The page, with hits where its form is filled in."""
        given = request.query_params
        form = Form(*(given.get(name, "") for name in Form._fields))
        try:
            asked = "id" if "id" in given else "q"
            hits = await self._hits(request, asked) if given else None
            like = await asyncio.to_thread(self._row, form.id) if asked == "id" else None
            return HTMLResponse(await asyncio.to_thread(page, self._served, form, hits, like=like))
        except Exception as error:
            status, line = status_of(error)
            return HTMLResponse(page(self._served, form, error=line), status)

    def _row(self, name: str) -> dict[str, Any]:
        """The row that has an id, with its text (None if the store keeps none)."""
        rows = self._served.searcher.rows
        row = rows.first_with_id(name)
        return {"text": row.get(rows.text_field or ""), **row}

    def report(self, _: Request) -> Response:
        """The report of the store's runs; made in a thread, and at most twice a minute."""
        try:
            with self._reporting:
                if self._report is None or time.monotonic() - self._report[0] > REPORT_FOR:
                    manifest = self._served.manifest
                    summaries = run_summaries(manifest.root, known_summaries(manifest.root))
                    self._report = time.monotonic(), report_page(manifest.root, summaries, manifest)
                return HTMLResponse(
                    self._report[1], headers={"Content-Security-Policy": INLINE_STYLE}
                )
        except Exception as error:
            return said(error)

    async def health(self, _: Request) -> Response:
        """That the server answers, from which snapshot, and whether that may not be the current
        one.
        """
        manifest, problem = self._served.manifest, self._served.problem
        state = {"status": "stale", "problem": problem} if problem else {"status": "ok"}
        return as_json(
            {**state, "store": manifest.root, "run": manifest.run, "rows": manifest.rows.stored}
        )

    async def metrics(self, _: Request) -> Response:
        """Figures for Prometheus."""
        return Response(
            self.counts.text(self._served, len(self._batches)), headers={"Content-Type": TYPE}
        )

    async def style(self, _: Request) -> Response:
        """The style sheet."""
        return Response(style(), media_type="text/css")

    async def _unknown(self, request: Request, error: Exception) -> Response:
        """The answer to a path or method that there is not."""
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return said(
                RefusedError(
                    404,
                    f"there is no {request.url.path[:100]}; there are {', '.join(self._routes)}",
                )
            )
        return said(
            HTTPException(
                error.status_code, f"{request.method} is not answered; ask by GET", error.headers
            )
        )
