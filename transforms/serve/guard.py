"""What every request passes: bounds, the name it was sent to, headers of security, and counting."""

import time
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transforms.serve.answers import said
from transforms.serve.metrics import Counts
from transforms.serve.question import RefusedError

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
    """The application behind it answers what is within bounds; `names` are those of this server
    (None: any).

    A page of another site may have its own name lead to this machine's loopback, and a browser then
    send requests here as if this were that site: where names are known, others are refused.
    """

    def __init__(
        self, app: ASGIApp, routes: Collection[str], counts: Counts, names: frozenset[str] | None
    ):
        self._app, self._routes, self._counts, self._names = app, routes, counts, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refused(scope)
        try:
            await (said(refused) if refused else self._app)(scope, receive, answered)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._counts.request(route, status, time.perf_counter() - started)

    def _refused(self, scope: Scope) -> RefusedError | None:
        """The error of a request that is out of bounds."""
        headers = Headers(scope=scope)
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size > MOST_BYTES:
            return RefusedError(413, f"the address has {size:,} bytes; {MOST_BYTES:,} are the most")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return RefusedError(
                413, "the request has a body, which nothing here reads; put all into the address"
            )
        if self._names is not None and _host(headers.get("host", "")) not in self._names:
            return RefusedError(
                400,
                f"the host is {headers.get('host', '')[:100]!r}; this server answers to localhost"
                " alone",
            )
        return None


def _host(header: str) -> str:
    """The name in a header `Host`, without its port.

    >>> _host("LocalHost:8000"), _host("[::1]:8000")
    ('localhost', '::1')
    """
    name = (
        header.rpartition(":")[0]
        if header.rpartition(":")[2].isdecimal() and not header.endswith("]")
        else header
    )
    return name.strip("[]").lower()
