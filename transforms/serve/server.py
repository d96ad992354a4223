"""The HTTP server: binds an address of this machine and answers until a signal ends it."""

import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.serve.app import Application
from sentence_beam.transforms.serve.guard import MOST_BYTES

MOST_CONNECTIONS = 1000
ENDED_WITHIN = 10  # seconds to finish requests when the server ends
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """A server that returns normally after a signal, and calls `ready` once it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, but do not raise them again afterwards."""
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address (port 0: any free port) that does not listen yet.

    Raises OptionError if the address is not this machine's or another program uses it.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        # without the protocol asyncio does not set TCP_NODELAY, and small answers take 40 ms more
        bound_socket = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OptionError(
            f"{cite('host')} {host}: {error.strerror}; say an address of this machine"
        ) from error
    try:
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_socket.bind(address)
    except OSError as error:
        bound_socket.close()
        raise OptionError(
            f"{cite('host')} {host} {cite('port')} {port}: {error.strerror}; say another address,"
            f" or {cite('port')} 0"
        ) from error
    return bound_socket


def find_address(listening: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Return whether only this machine reaches the address of a bound socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def configure(application: Application, loopback: bool) -> uvicorn.Config:
    """Return the server's configuration for an application; `loopback` as in its `asgi`."""
    return uvicorn.Config(
        application.asgi(loopback),
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=2 * MOST_BYTES,
        timeout_graceful_shutdown=ENDED_WITHIN,
    )


def serve(application: Application, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until Ctrl-C or SIGTERM; for the main thread.

    `ready` is called once the server listens.
    """
    _Server(configure(application, is_loopback(listening)), ready).run([listening])
