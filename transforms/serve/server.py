"""The server: an address of this machine, requests until a signal ends it."""

import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from transforms.base.errors import OptionError
from transforms.serve.app import Application
from transforms.serve.guard import MOST_BYTES

MOST_CONNECTIONS = 1000
ENDED_WITHIN = 10  # seconds that requests under way may take when the server ends
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """A server for which a signal is no error: it ends and returns; `ready` is called once it
    listens.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bound(host: str, port: int) -> socket.socket:
    """A socket with this address (port 0: any that is free), which does not listen yet.

    Raises OptionError for an address that is not this machine's, or that another program has.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        # Only where a socket is told to be TCP's does asyncio send small answers at once, not some
        # 40 ms later.
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OptionError(
            f"--host {host}: {error.strerror}; say an address of this machine"
        ) from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        found.close()
        raise OptionError(
            f"--host {host} --port {port}: {error.strerror}; say another address, or --port 0"
        ) from error
    return found


def address_of(listening: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Whether this machine alone reaches the address of a bound socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def configured(application: Application, loopback: bool) -> uvicorn.Config:
    """How the server runs an application; on `loopback` it answers requests to this machine's own
    names alone.
    """
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
    """Answer requests until Ctrl-C or SIGTERM; for the main thread. `ready` is called once the
    server listens.
    """
    _Server(configured(application, is_loopback(listening)), ready).run([listening])
