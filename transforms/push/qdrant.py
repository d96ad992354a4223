"""Qdrant: points whose ids are made of the rows' ids; what is remembered is the collection's metadata."""

import contextlib
import os
import uuid
import warnings
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException

from transforms.arrow import as_matrix
from transforms.errors import first_line
from transforms.push.target import MARK, State, Table, refused
from transforms.push.turn import Turn
from transforms.push.values import json_value

API_KEY = "QDRANT_API_KEY"
SECONDS = 60
NUMBERS = 250_000  # components in one request, some three megabytes
LISTED = 10_000
DISTANCES = {"cosine": models.Distance.COSINE, "ip": models.Distance.DOT, "l2": models.Distance.EUCLID}


@contextlib.contextmanager
def opened(place: str, name: str, where: str) -> Iterator["QdrantTarget"]:
    """The target: at a URL, or in a folder that no other process has open."""
    try:
        if "://" in place:
            key = os.environ.get(API_KEY)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a key without TLS: the URL says it
                client = QdrantClient(url=place, api_key=key, timeout=SECONDS, check_compatibility=False)
        else:
            client = QdrantClient(path=place)
    except (RuntimeError, ValueError, OSError) as error:
        raise refused(where, first_line(error), "check the URL or folder") from error
    target = QdrantTarget(client, name, where)
    try:
        yield target
    except ApiException as error:
        mend = f"check the URL, the environment variable {API_KEY}, and that the server runs; then push again"
        raise refused(where, first_line(error), mend) from error
    finally:
        target.turn.give_up()
        client.close()


class QdrantTarget:
    """A collection of Qdrant, with one vector a point."""

    def __init__(self, client: QdrantClient, name: str, where: str) -> None:
        self.where = where
        self._client = client
        self._name = name
        self.turn = Turn(where, self._read, self._remember)

    def state(self) -> State | None:
        """What the collection's metadata says."""
        return self.turn.look()

    def _read(self) -> State | None:
        if not self._client.collection_exists(self._name):
            return None
        return State.read(self._metadata().get(MARK), self.where)

    def _metadata(self) -> dict[str, Any]:
        return self._client.get_collection(self._name).config.metadata or {}

    def _remember(self, state: State) -> None:
        self._client.update_collection(self._name, metadata={MARK: state.text})

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The keys of all points."""
        after: Any = None
        while True:
            points, after = self._client.scroll(
                self._name, limit=LISTED, offset=after, with_payload=list(keys), with_vectors=False
            )
            rows = [{key: (point.payload or {}).get(key) for key in keys} for point in points]
            yield pa.RecordBatch.from_pylist(rows, schema=pa.schema([(k, _KEY_TYPES[k]) for k in keys]))
            if after is None:
                return

    def begin(self, table: Table, state: State, anew: bool) -> None:
        """Make the collection, or remember the state in it."""
        self.turn.take(state, lambda told: self._made(table, told))

    def _made(self, table: Table, state: State) -> None:
        """Have the collection, with the state."""
        if self._client.collection_exists(self._name):
            self._remember(state)
            return
        vectors = models.VectorParams(size=table.dim, distance=DISTANCES[table.metric])
        self._client.create_collection(self._name, vectors_config=vectors, metadata={MARK: state.text})
        if MARK not in self._metadata():
            self._client.delete_collection(self._name)
            raise refused(self.where, "it keeps no metadata of collections", "run Qdrant 1.16 or later")

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Write points over those of the same ids."""
        vectors = as_matrix(rows.column("embedding"))
        names = [name for name in rows.schema.names if name != "embedding"]
        where = f"--to {self.where}: the column"
        payloads = [[json_value(v, f"{where} {n!r}") for v in rows.column(n).to_pylist()] for n in names]
        points = [
            models.PointStruct(id=point, vector=vector.tolist(), payload=dict(zip(names, payload, strict=True)))
            for point, vector, payload in zip(_points(rows), vectors, zip(*payloads, strict=True), strict=True)
        ]
        step = max(1, NUMBERS // vectors.shape[1])
        for start in range(0, len(points), step):
            self.turn.keep()
            self._client.upsert(self._name, points[start : start + step], wait=True)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the points of these keys."""
        points: Sequence[Any] = _points(keys)
        for start in range(0, len(points), LISTED):
            self.turn.keep()
            chosen = models.PointIdsList(points=list(points[start : start + LISTED]))
            self._client.delete(self._name, chosen, wait=True)

    def count(self) -> int:
        """The number of points."""
        return self._client.count(self._name, exact=True).count

    def finish(self, state: State) -> None:
        """Write the state of the finished push into the target, and give the turn back."""
        self.turn.end(state)


_KEY_TYPES = {"id": pa.string(), "piece": pa.int32()}


def _points(rows: pa.RecordBatch) -> list[str]:
    """The ids of rows' points: UUIDs made of the row's id and the number of the piece."""
    pieces = rows.column("piece").to_pylist() if "piece" in rows.schema.names else [0] * rows.num_rows
    named = zip(rows.column("id").to_pylist(), pieces, strict=True)
    return [str(uuid.UUID(bytes=blake2b(f"{piece} {i}".encode(), digest_size=16).digest())) for i, piece in named]
