"""Checks of every request (size, host), security headers of every answer, and counting."""

import time
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sentence_beam.transforms.serve.http_answers import make_error_response
from sentence_beam.transforms.serve.question import RefusedError
from sentence_beam.transforms.serve.server_metrics import Counts

MOST_BYTES = 48 << 10  # of path and query
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Middleware that passes requests within bounds to the application.

    `names` are this server's own (None: any name). A page of another site may point its name at
    this machine's loopback, so that a browser sends requests here as if to that site (DNS
    rebinding). Requests to other names are therefore refused. Paths may begin with `root_path`.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Collection[str],
        counts: Counts,
        names: frozenset[str] | None,
        root_path: str = "",
    ):
        self._app = app
        self._root_path = root_path
        self._routes = routes
        self._counts = counts
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": self._find_path(scope["path"])}
        started = time.perf_counter()
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        error = self._find_error(scope)
        app: ASGIApp = self._app if error is None else make_error_response(error)
        try:
            await app(scope, receive, send_with_headers)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._counts.request(route, status, time.perf_counter() - started)

    def _find_path(self, path: str) -> str:
        """Return the path of a route, without the root path if a proxy has left it there."""
        rest = path.removeprefix(self._root_path)
        if path in self._routes or not f"{rest}/".startswith("/"):
            return path
        return rest or "/"

    def _find_error(self, scope: Scope) -> RefusedError | None:
        """Return the error of a request that is out of bounds, None for others."""
        headers = Headers(scope=scope)
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size > MOST_BYTES:
            return RefusedError(413, f"the address has {size:,} bytes; {MOST_BYTES:,} are the most")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return RefusedError(
                413, "the request has a body, which nothing here reads; put all into the address"
            )
        if self._names is not None and parse_host(headers.get("host", "")) not in self._names:
            return RefusedError(
                400,
                f"the host is {headers.get('host', '')[:100]!r}; this server answers to localhost"
                " alone",
            )
        return None


def parse_host(header: str) -> str:
    """Return the name in a header `Host`, without its port.

    >>> host_of("LocalHost:8000"), host_of("[::1]:8000")
    ('localhost', '::1')
    """
    name, _, port = header.rpartition(":")
    if not port.isdecimal():
        name = header
    return name.strip("[]").lower()
