"""A store served in a thread of this process, on a free port of loopback."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import uvicorn

from sentence_beam.transforms.serve.app import Application
from sentence_beam.transforms.serve.followed import Followed
from sentence_beam.transforms.serve.server import configured

OFTEN = 0.05  # seconds between looks at the store
NEVER = 3600.0


@dataclass(frozen=True)
class Served:
    """What is served, the server's address, and a client of it."""

    followed: Followed
    application: Application
    address: str
    client: httpx.Client

    def get(self, path: str, **params: object) -> httpx.Response:
        """What a request gives."""
        return self.client.get(path, params={name: str(value) for name, value in params.items()})

    def ids(self, **params: object) -> list[str]:
        """The ids of hits."""
        return [
            hit["id"]
            for hit in self.get("/similar" if "id" in params else "/search", **params).json()[
                "hits"
            ]
        ]

    def until(self, run: str) -> None:
        """Wait until a run's snapshot is searched."""
        end = time.monotonic() + 60
        while self.get("/healthz").json()["run"] != run:
            assert time.monotonic() < end, self.get("/healthz").json()
            time.sleep(0.02)


@contextlib.contextmanager
def serving(
    store: object, every: float = OFTEN, root_path: str = "", **how: str | None
) -> Iterator[Served]:
    """A store's server; `how` are further arguments of `Followed`."""
    followed = Followed(str(store), **how)
    application = Application(followed, every, root_path)
    server = uvicorn.Server(configured(application, loopback=True))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            with httpx.Client(base_url=address, timeout=60, verify=False) as client:
                yield Served(followed, application, address, client)
        finally:
            server.should_exit = True
            thread.join()
