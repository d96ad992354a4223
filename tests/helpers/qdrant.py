"""Qdrant behind HTTP on this machine: its client's own store in memory, by the few requests that
`push` makes.

The program itself cannot be had here; what is tested is what the client sends and how its errors
are told.
"""

import contextlib
import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "a secret"


def _answer(client: Any, method: str, path: str, body: dict[str, Any]) -> Any:
    from qdrant_client import models

    if path == "/aliases":
        return client.get_aliases().model_dump(mode="json")
    _, _, name, *rest = path.split("/")
    match method, rest:
        case "POST", []:  # /collections/aliases
            kinds = {
                "create_alias": models.CreateAliasOperation,
                "delete_alias": models.DeleteAliasOperation,
            }
            actions = [kinds[kind](**action) for action in body["actions"] for kind in action]
            return client.update_collection_aliases(actions)
        case "GET", ["exists"]:
            return {"exists": client.collection_exists(name)}
        case "GET", []:
            return client.get_collection(name).model_dump(mode="json")
        case "PUT", []:
            vectors = models.VectorParams(**body["vectors"])
            return client.create_collection(name, vectors, metadata=body["metadata"])
        case "PATCH", []:
            return client.update_collection(name, metadata=body["metadata"])
        case "PUT", ["points"]:
            points = [models.PointStruct(**point) for point in body["points"]]
            return client.upsert(name, points).model_dump(mode="json")
        case "POST", ["points", "delete"]:
            return client.delete(name, body["points"]).model_dump(mode="json")
        case "POST", ["points", "count"]:
            return {"count": client.count(name, exact=body["exact"]).count}
        case "POST", ["points", "scroll"]:
            wanted = {key: body.get(key) for key in ("limit", "offset", "with_payload")}
            points, after = client.scroll(
                name, with_vectors=body.get("with_vector", False), **wanted
            )
            return {
                "points": [point.model_dump(mode="json") for point in points],
                "next_page_offset": after,
            }
    raise NotImplementedError(f"{method} {path}")


def client_of(url: str) -> Any:
    """A client of the server at this URL."""
    from qdrant_client import QdrantClient

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a key without TLS
        return QdrantClient(url=url, api_key=KEY, check_compatibility=False)


@contextlib.contextmanager
def running(late: int = 0) -> Iterator[tuple[str, Any]]:
    """The server, which wants `KEY`; gives its URL and a client of what is behind it.

    The first `late` requests for points find no collection.
    """
    from qdrant_client import QdrantClient

    client, lock = QdrantClient(":memory:"), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            nonlocal late
            if self.command == "PUT" and "/points" in self.path and late:
                late -= 1
                self._send(404, {"status": {"error": "Not found: Collection doesn't exist!"}})
                return
            if self.headers.get("api-key") != KEY:
                self._send(403, {"status": {"error": "Forbidden"}})
                return
            try:
                with lock:
                    result = _answer(
                        client, self.command, self.path.partition("?")[0], json.loads(body or b"{}")
                    )
            except ValueError as error:
                if "not found" not in str(error):
                    raise
                self._send(404, {"status": {"error": f"Not found: {error}"}})
                return
            self._send(200, {"time": 0.0, "status": "ok", "result": result})

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_PATCH = _do

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", client
    finally:
        server.shutdown()
        server.server_close()
