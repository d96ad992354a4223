"""Qdrant: point ids are made from row ids; the state is the collection's metadata.

A push writes by its own alias of the collection. The push that takes the turn removes the aliases
of earlier pushes, so that Qdrant refuses their late writes.
"""

import contextlib
import os
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.base.errors import first_line
from sentence_beam.transforms.base.plain_values import to_json_value, to_python_values
from sentence_beam.transforms.push.state import MARK, Notes, PushRecord, State, name_note
from sentence_beam.transforms.push.target import Table, explain_refusal
from sentence_beam.transforms.push.turn import Turn

API_KEY = "QDRANT_API_KEY"
SECONDS = 60
NUMBERS = 250_000  # components in one request, about 3 MB
LISTED = 10_000
MISSING = 404
PAUSES = (0.1, 1, 5)
DISTANCES = {
    "cosine": models.Distance.COSINE,
    "ip": models.Distance.DOT,
    "l2": models.Distance.EUCLID,
}


@contextlib.contextmanager
def connect(place: str, name: str, where: str) -> Iterator["QdrantTarget"]:
    """The target at a URL, or in a folder that no other process has open."""
    try:
        client = _open_client(place) if "://" in place else QdrantClient(path=place)
    except (RuntimeError, ValueError, OSError) as error:
        raise explain_refusal(where, first_line(error), "check the URL or folder") from error
    target = QdrantTarget(client, name, where, place)
    try:
        yield target
    except ApiException as error:
        mend = (
            f"check the URL, the environment variable {API_KEY}, and that the server runs; then"
            " push again"
        )
        raise explain_refusal(where, first_line(error), mend) from error
    finally:
        target.close()
        client.close()


class QdrantTarget:
    """A collection of Qdrant, with one vector a point."""

    def __init__(self, client: QdrantClient, name: str, where: str, place: str) -> None:
        self.where = where
        self.takes_parallel = "://" in place
        self._place = place
        self._client = client
        self._name = name
        self.turn = Turn(where, self)
        self._alias = name_note(self.turn.push)

    def state(self) -> State | None:
        """Return the state in the collection's metadata."""
        for alias in self._client.get_aliases().aliases:
            if alias.alias_name == self._name:
                self._name = alias.collection_name
                break
        return self.turn.look()

    def read_notes(self) -> Notes | None:
        """Read the collection's metadata."""
        if not self._client.collection_exists(self._name):
            return None
        return self._client.get_collection(self._name).config.metadata or {}

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Write metadata of the collection; Qdrant merges it with the existing metadata."""
        self._client.update_collection(self._name, metadata=dict(notes))

    def fence(self, push: str, others: Collection[str]) -> None:
        """Remove the aliases of other pushes, and create this one's."""
        alias = models.CreateAlias(collection_name=self._name, alias_name=name_note(push))
        changes: list[Any] = [models.CreateAliasOperation(create_alias=alias)]
        changes += map(_make_removal, others)
        self._client.update_collection_aliases(changes)

    def close(self) -> None:
        """Remove the alias of an unfinished push, and end its turn."""
        if self.turn.is_taken:
            with contextlib.suppress(Exception):  # the error that ended the push is raised
                self._client.update_collection_aliases([_make_removal(self.turn.push)])
            self.turn.give_up()

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the keys of all points."""
        schema = pa.schema([(key, _KEY_TYPES[key]) for key in keys])
        after: Any = None
        while True:
            points, after = self._client.scroll(
                self._name, limit=LISTED, offset=after, with_payload=list(keys), with_vectors=False
            )
            rows = [{key: (point.payload or {}).get(key) for key in keys} for point in points]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            if after is None:
                return

    def begin(self, table: Table, record: PushRecord) -> None:
        """Create the collection, or take its turn."""
        self.turn.take(table, record, lambda notes: self._create(table, notes))

    def _create(self, table: Table, notes: Notes) -> None:
        vectors = models.VectorParams(size=table.space.dim, distance=DISTANCES[table.metric])
        self._client.create_collection(self._name, vectors_config=vectors, metadata=dict(notes))
        if MARK not in (self.read_notes() or {}):
            self._client.delete_collection(self._name)
            raise explain_refusal(
                self.where, "it keeps no metadata of collections", "run Qdrant 1.16 or later"
            )

    @contextlib.contextmanager
    def written_by_workers(self) -> Iterator["PointWriter"]:
        """Yield what writes points by this push's alias; the turn is kept meanwhile."""
        with self.turn.kept():
            yield PointWriter(self._place, self._alias, self.where)

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Write points; they replace those with the same ids."""
        for part in _split_points(rows):
            self._send(partial(self._client.upsert, self._alias, part, wait=True))

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the points of these keys."""
        points: Sequence[Any] = _make_point_ids(keys)
        for start in range(0, len(points), LISTED):
            chosen = models.PointIdsList(points=list(points[start : start + LISTED]))
            self._send(partial(self._client.delete, self._alias, chosen, wait=True))

    def _send(self, write: Callable[[], Any]) -> None:
        """Write one batch."""

        def in_turn() -> None:
            with self.turn.writing():
                write()

        _send(in_turn)

    def count(self) -> int:
        """Return the number of points."""
        rows = self._client.count(self._name, exact=True).count
        self.turn.check()
        return rows

    def finish(self) -> None:
        """Remove the push's alias, record that the push is done, and end its turn."""
        self._client.update_collection_aliases([_make_removal(self.turn.push)])
        self.turn.finish()


@dataclass(frozen=True)
class PointWriter:
    """Writes points by an alias of a collection of the server at `url`."""

    url: str
    alias: str
    where: str

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write points; they replace those with the same ids."""
        with contextlib.closing(_open_client(self.url)) as client:
            for rows in batches:
                for part in _split_points(rows):
                    _send(partial(client.upsert, self.alias, part, wait=True))


def _open_client(url: str) -> QdrantClient:
    """The client of a server, with the key that this machine has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a key without TLS, which the URL shows
        return QdrantClient(
            url=url, api_key=os.environ.get(API_KEY), timeout=SECONDS, check_compatibility=False
        )


def _split_points(rows: pa.RecordBatch) -> Iterator[list[models.PointStruct]]:
    """Yield the points of rows, as many at a time as one request takes."""
    vectors = as_matrix(rows.column("embedding"))
    names = [name for name in rows.schema.names if name != "embedding"]
    columns = []
    for name in names:
        columns.append([to_json_value(value) for value in to_python_values(rows.column(name))])
    payloads = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
    points = [
        models.PointStruct(id=point, vector=vector.tolist(), payload=payload)
        for point, vector, payload in zip(_make_point_ids(rows), vectors, payloads, strict=True)
    ]
    step = max(1, NUMBERS // vectors.shape[1])
    for start in range(0, len(points), step):
        yield points[start : start + step]


def _send(write: Callable[[], Any]) -> None:
    """Write one batch; retry if the alias is unknown.

    Some nodes of a cluster learn of it later.
    """
    for seconds in PAUSES:
        try:
            write()
            return
        except UnexpectedResponse as error:
            if error.status_code != MISSING:
                raise
        time.sleep(seconds)
    write()


def _make_removal(push: str) -> models.DeleteAliasOperation:
    return models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name_note(push)))


_KEY_TYPES = {"id": pa.string(), "piece": pa.int32()}


def _make_point_ids(rows: pa.RecordBatch) -> list[str]:
    """The ids of rows' points: UUIDs made from the row's id and the number of the piece."""
    pieces = [0] * rows.num_rows
    if "piece" in rows.schema.names:
        pieces = rows.column("piece").to_pylist()
    points = []
    for row_id, piece in zip(rows.column("id").to_pylist(), pieces, strict=True):
        digest = blake2b(f"{piece} {row_id}".encode(), digest_size=16).digest()
        points.append(str(uuid.UUID(bytes=digest)))
    return points
