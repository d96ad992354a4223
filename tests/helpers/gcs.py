"""gs:// on this machine: a real server, behind a proxy that counts requests and can make them fail.

The server is fake-gcs-server, named by SENTENCE_BEAM_FAKE_GCS. It ignores preconditions of DELETE,
so the proxy keeps them. Credentials are a fresh service account's, whose tokens a server here hands
out.
"""

import contextlib
import http.client
import itertools
import json
import os
import random
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.api_core.retry import retry_unary

SERVER = "SENTENCE_BEAM_FAKE_GCS"
BUCKET = "corpus"
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass
class Faults:
    """What goes wrong between client and server: shares of requests, and seconds that slow ones
    wait.

    `refused` is a pattern of "METHOD /path" that is answered with 403.
    """

    unavailable: float = 0.0
    cut: float = 0.0
    slow: float = 0.0
    wait: float = 0.0
    refused: str | None = None
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    happened: int = 0

    def happens(self, share: float) -> bool:
        happens = share > 0 and self.dice.random() < share
        self.happened += happens
        return happens


@dataclass
class Gcs:
    """The running service: requests seen so far, as "METHOD /path?query", bytes both ways, and what
    goes wrong.
    """

    port: int
    requests: list[str] = field(default_factory=list)
    bytes: int = 0
    faults: Faults = field(default_factory=Faults)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[str]]:
        """The requests of the block."""
        start, found = len(self.requests), []
        yield found
        found += self.requests[start:]

    @contextlib.contextmanager
    def failing(self, **faults: object) -> Iterator[None]:
        """Things go wrong within the block; the client of this process tries again at once."""
        self.faults = Faults(**faults)  # type: ignore[arg-type]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                retry_unary,
                "exponential_sleep_generator",
                lambda *args, **kwargs: itertools.repeat(0.001),
            )
            try:
                yield
            finally:
                self.faults = Faults()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[int]:
    """A server in a thread; gives its port."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def process(command: list[str], port: int) -> Iterator[None]:
    """A server process that has opened its port; it is stopped by its process id."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert child.poll() is None, f"{command[0]} ended with status {child.returncode}"
                time.sleep(0.05)
            yield
        finally:
            child.kill()
            child.wait()


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Environment variables for the block; None unsets."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


class _Tokens(_Handler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, b'{"access_token":"x","expires_in":3600,"token_type":"Bearer"}')


class _Proxy(_Handler):
    """Hands requests on to the server; a subclass names the service that it is part of, and the
    server's port.
    """

    gcs: Gcs
    behind: int
    local = threading.local()

    def ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        for _ in range(2):  # the server may have closed a connection that was kept
            connection = getattr(self.local, "connection", None)
            if connection is None or connection.port != self.behind:
                connection = self.local.connection = http.client.HTTPConnection(
                    "127.0.0.1", self.behind, timeout=60
                )
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                return response.status, dict(response.getheaders()), response.read()
            except (http.client.HTTPException, OSError):
                self.local.connection = None
        raise AssertionError("the server is gone")

    def forward(self) -> None:
        body = self._body()
        request = f"{self.command} {self.path}"
        self.gcs.requests.append(request)
        faults = self.gcs.faults
        if faults.happens(faults.slow):
            time.sleep(faults.wait)
        if faults.refused and re.search(faults.refused, request):
            self.answer(
                403, b'{"error":{"code":403,"message":"does not have storage.objects access"}}'
            )
        elif faults.happens(faults.unavailable):
            self.answer(503, b"")
        elif self._stale():
            self.answer(412, b"")
        else:
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in HOP
            }
            status, got, data = self.ask(self.command, self.path, body, headers)
            self.gcs.bytes += len(body) + len(data)
            length = int(got.get("Content-Length", 0)) if self.command == "HEAD" else len(data)
            self._return(
                status,
                {name: value for name, value in got.items() if name.lower() not in HOP},
                data,
                length,
            )

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return b"".join(iter(self._chunk, b""))

    def _chunk(self) -> bytes:
        data = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return data

    def _stale(self) -> bool:
        """Whether a DELETE names another generation than the one that stands."""
        wanted = re.search(r"[?&]ifGenerationMatch=(\d+)", self.path)
        if self.command != "DELETE" or wanted is None:
            return False
        status, _, data = self.ask("GET", self.path.partition("?")[0], b"", {})
        return status == 200 and json.loads(data)["generation"] != wanted[1]

    def _return(self, status: int, headers: dict[str, str], data: bytes, length: int) -> None:
        cut = self.gcs.faults.happens(self.gcs.faults.cut)
        self.answer(status, data[: len(data) // 2] if cut else data, headers, length)
        if cut:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = forward


def credentials(folder: Path, token_port: int) -> Path:
    """A service account's file with a key of its own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": pem,
        "client_email": "tests@project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"http://127.0.0.1:{token_port}/token",
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    return path


@contextlib.contextmanager
def proxy(service: Gcs, behind: int) -> Iterator[int]:
    """The proxy of a service before the server at a port; gives its own port."""
    handler = type("Proxy", (_Proxy,), {"gcs": service, "behind": behind})
    with serving(_Server(("127.0.0.1", 0), handler)) as port:
        yield port


@contextlib.contextmanager
def running(folder: Path, server: str) -> Iterator[Gcs]:
    """The whole service with one empty bucket, and the environment in which clients find it."""
    behind = free_port()
    gcs = Gcs(0)
    with contextlib.ExitStack() as stack:
        gcs.port = stack.enter_context(proxy(gcs, behind))
        tokens = stack.enter_context(serving(_Server(("127.0.0.1", 0), _Tokens)))
        # Sessions of large uploads are addresses that the server gives out: they have to be the
        # proxy's.
        where = [
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(behind),
            "-external-url",
            gcs.address,
        ]
        stack.enter_context(process([server, *where, "-backend", "memory"], behind))
        account = str(credentials(folder, tokens))
        stack.enter_context(
            environment(GOOGLE_APPLICATION_CREDENTIALS=account, GOOGLE_CLOUD_PROJECT="project")
        )
        stack.enter_context(environment(STORAGE_EMULATOR_HOST=gcs.address))
        make_bucket(gcs.address, BUCKET)
        yield gcs


@contextlib.contextmanager
def other_server(command: list[str]) -> Iterator[None]:
    """Another emulator, without the proxy, in place of the running service."""
    port = free_port()
    where = [
        "start",
        "--host=127.0.0.1",
        f"--port={port}",
        "--in-memory",
        f"--default-bucket={BUCKET}",
    ]
    with (
        process([*command, *where], port),
        environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}"),
    ):
        yield


def make_bucket(address: str, name: str) -> None:
    """Make a bucket through the service's own interface."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    body = json.dumps({"name": name})
    connection.request(
        "POST", "/storage/v1/b?project=project", body, {"Content-Type": "application/json"}
    )
    assert connection.getresponse().status == 200
    connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients of a test that is over close their connections as they like."""
