"""Keyed hashes of erased rows, by which a row that returns is known without its id or text."""

import functools
import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import refuse_damage
from sentence_beam.transforms.base.json_entries import JsonEntry, hex_digest, matching
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import ForgottenEntry
from sentence_beam.transforms.store.named_files import read_named
from sentence_beam.transforms.store.sealed_json import to_bytes

KEY_BYTES = 32
_DIGEST_BYTES = 16

Digest = Annotated[str, hex_digest]
Key = Annotated[str, matching(r"[0-9a-f]{64}", "64 hex digits")]


def hash_with_key(key: bytes, kind: bytes, value: bytes) -> str:
    """Return blake2b of a value under a key, 32 hex digits; `kind` keeps ids and texts apart."""
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, key=key, person=kind).hexdigest()


def hash_id(key: bytes, row_id: str) -> str:
    """Return the keyed hash of a row's id."""
    return hash_with_key(key, b"id", row_id.encode())


def hash_text(key: bytes, row_hash: bytes) -> str:
    """Return the keyed hash of a row hash, or of a document's hash."""
    return hash_with_key(key, b"text", row_hash)


@dataclass(frozen=True)
class ForgottenRow(JsonEntry):
    """Keyed hashes of an erased row: its id, and its texts in all snapshots.

    `documents` are those of whole documents if its text was cut into pieces; its `texts` are then
    the pieces that no other document had. With `by_id`, the row had an id of its own, and is known
    by it if it returns; otherwise by its text.
    """

    id: Digest
    by_id: bool
    texts: tuple[Digest, ...] = ()
    documents: tuple[Digest, ...] = ()


@dataclass(frozen=True)
class ForgottenRows(JsonEntry):
    """All erased rows of a store, and the store's key of their hashes, in hex.

    `allowed` are keyed hashes of the ids of rows that were let back in.
    """

    key: Key
    rows: tuple[ForgottenRow, ...] = ()
    allowed: tuple[Digest, ...] = ()

    @classmethod
    def none(cls) -> "ForgottenRows":
        """Return the list of a store that has erased no row, with a new key."""
        return cls(secrets.token_hex(KEY_BYTES))

    @property
    def key_bytes(self) -> bytes:
        """The key of the hashes, as bytes."""
        return bytes.fromhex(self.key)

    @property
    def ids(self) -> set[str]:
        """The keyed hashes of the rows' ids."""
        return {row.id for row in self.rows}

    def add_rows(self, rows: Iterable[ForgottenRow]) -> "ForgottenRows":
        """Return the list with more rows; hashes of rows with the same id are joined."""
        merged = {row.id: row for row in self.rows}
        for row in rows:
            merged[row.id] = _merge(merged.get(row.id, row), row)
        rows_by_id = tuple(merged[name] for name in sorted(merged))
        return replace(self, rows=rows_by_id)

    def without(self, ids: Iterable[str]) -> "ForgottenRows":
        """Return the list that lets the rows with some keyed hashes of ids back in."""
        gone = set(ids)
        kept = tuple(row for row in self.rows if row.id not in gone)
        return replace(self, rows=kept, allowed=tuple(sorted({*self.allowed, *gone})))


def _merge(one: ForgottenRow, other: ForgottenRow) -> ForgottenRow:
    def join(name: str) -> tuple[str, ...]:
        return tuple(sorted({*getattr(one, name), *getattr(other, name)}))

    return ForgottenRow(one.id, other.by_id, join("texts"), join("documents"))


def write_rows(root: str, rows: ForgottenRows) -> None:
    """Write the list of erased rows into a store."""
    path = make_entry(rows, "").path
    storage.ensure(storage.join(root, path), to_bytes(rows.to_json()))


def make_entry(rows: ForgottenRows, run: str) -> ForgottenEntry:
    """Return the manifest's entry of a list of erased rows, written or not.

    `run` erased rows last.
    """
    sha256 = hashlib.sha256(to_bytes(rows.to_json())).hexdigest()
    return ForgottenEntry(layout.forgotten(sha256), sha256, len(rows.rows), run)


def read_rows(root: str, entry: ForgottenEntry | None) -> ForgottenRows:
    """Return the erased rows of a store; none if no row was erased.

    Raises SentenceBeamError if the list is missing or was changed.
    """
    if entry is None:
        return ForgottenRows.none()
    path = storage.join(root, entry.path)
    mend = "restore this list of erased rows: without it they would return"
    data = read_named(path, entry.sha256, mend)
    with refuse_damage(f"{path} is no list of erased rows", "restore it"):
        return ForgottenRows.from_json(json.loads(data))


@dataclass(frozen=True)
class Returning:
    """Recognises erased rows: by their `ids`, or by their `texts`, which are keyed hashes."""

    key: bytes
    ids: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    @classmethod
    def from_rows(cls, rows: ForgottenRows) -> "Returning":
        """Return what recognises the rows of a list."""
        by_text = [row.documents or row.texts for row in rows.rows if not row.by_id]
        texts = frozenset(text for some in by_text for text in some)
        ids = frozenset(row.id for row in rows.rows if row.by_id)
        return cls(rows.key_bytes, ids, texts)

    def find(self, row_id: str | None, text: bytes | None) -> str | None:
        """Return the keyed hash by which a row was erased; None if it was not.

        `text` is the hash of its text, or of its whole document. What is None is not compared.
        """
        if self.ids and row_id is not None:
            name = hash_id(self.key, row_id)
            if name in self.ids:
                return name
        if self.texts and text is not None:
            name = hash_text(self.key, text)
            if name in self.texts:
                return name
        return None


@functools.lru_cache(4)
def returning(root: str, entry: ForgottenEntry) -> Returning:
    """Return what recognises the erased rows of a store; a process reads their list once.

    Raises as `read_rows` does.
    """
    return Returning.from_rows(read_rows(root, entry))
