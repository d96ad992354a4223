"""Keyed hashes of erased rows, by which a row that returns is known without its id or text."""

import functools
import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.entries import JsonEntry, hex_digest
from sentence_beam.transforms.base.errors import OptionError, refuse_damage
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import ForgottenEntry
from sentence_beam.transforms.store.named_files import read_named
from sentence_beam.transforms.store.sealed_json import to_bytes

KEY_BYTES = 32
LEAST_KEY_BYTES = 16
_DIGEST_BYTES = 16

Digest = Annotated[str, hex_digest]


def keyed(key: bytes, kind: bytes, value: bytes) -> str:
    """Return blake2b of a value under a key, 32 hex digits; `kind` keeps ids and texts apart."""
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, key=key, person=kind).hexdigest()


def hash_of_id(key: bytes, row_id: str) -> str:
    """Return the keyed hash of a row's id."""
    return keyed(key, b"id", row_id.encode())


def hash_of_text(key: bytes, row_hash: bytes) -> str:
    """Return the keyed hash of a row hash, or of a document's hash."""
    return keyed(key, b"text", row_hash)


@dataclass(frozen=True)
class ForgottenRow(JsonEntry):
    """Keyed hashes of an erased row: its id, and its texts in all snapshots.

    `documents` are those of whole documents if its text was cut into pieces. `shared` are texts
    that other rows had too when it was erased.
    """

    id: Digest
    texts: tuple[Digest, ...] = ()
    documents: tuple[Digest, ...] = ()
    shared: tuple[Digest, ...] = ()


@dataclass(frozen=True)
class ForgottenRows(JsonEntry):
    """All erased rows of a store.

    `key` in hex is the store's own, "" if it is kept elsewhere; `mark` is the key's own hash, by
    which a wrong key is noticed. With `by_id`, rows have ids of their own, and one that returns is
    known by its id; otherwise by its text. `allowed` are keyed hashes of the ids of rows that were
    let back in.
    """

    mark: Digest
    by_id: bool
    key: str = ""
    rows: tuple[ForgottenRow, ...] = ()
    allowed: tuple[Digest, ...] = ()

    @classmethod
    def none(cls, key: bytes | None, by_id: bool) -> "ForgottenRows":
        """Return the list of a store that has erased no row; without a key it gets its own."""
        if key is not None:
            return cls(_mark(key), by_id)
        own = secrets.token_bytes(KEY_BYTES)
        return cls(_mark(own), by_id, own.hex())

    def key_with(self, given: bytes | None, root: str) -> bytes:
        """Return the key. Raises OptionError if it is kept elsewhere and not given, or is wrong."""
        if self.key:
            key = bytes.fromhex(self.key)
            if given is not None and given != key:
                raise OptionError(
                    f"--key: {root} has a key of its own since rows were first erased; leave it out"
                )
            return key
        if given is None:
            raise OptionError(
                f"{root} has erased rows, and the key of their hashes is kept elsewhere; say --key"
                " FILE"
            )
        if _mark(given) != self.mark:
            raise OptionError(f"--key: it is not the key by which rows of {root} were erased")
        return given

    def with_rows(self, rows: Iterable[ForgottenRow]) -> "ForgottenRows":
        """Return the list with more rows; hashes of rows with the same id are joined."""
        merged = {row.id: row for row in self.rows}
        for row in rows:
            merged[row.id] = _merged(merged.get(row.id, row), row)
        found = tuple(merged[name] for name in sorted(merged))
        return replace(self, rows=found)

    def without(self, ids: Iterable[str]) -> "ForgottenRows":
        """Return the list that lets the rows with some keyed hashes of ids back in."""
        gone = set(ids)
        kept = tuple(row for row in self.rows if row.id not in gone)
        return replace(self, rows=kept, allowed=tuple(sorted({*self.allowed, *gone})))


def _merged(one: ForgottenRow, other: ForgottenRow) -> ForgottenRow:
    def join(name: str) -> tuple[str, ...]:
        return tuple(sorted({*getattr(one, name), *getattr(other, name)}))

    return ForgottenRow(one.id, join("texts"), join("documents"), join("shared"))


def _mark(key: bytes) -> str:
    return keyed(key, b"mark", b"")


def read_key(path: str) -> bytes:
    """Return the bytes of a key's file.

    Raises OptionError if it cannot be read, or is too short or too long for a key.
    """
    try:
        key = storage.read_bytes(storage.absolute(path)).strip()
    except OSError as error:
        raise OptionError(
            f"--key: {path} cannot be read ({error.strerror or error}); name a file with a key"
        ) from error
    if not LEAST_KEY_BYTES <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
        raise OptionError(
            f"--key: {path} has {len(key)} bytes, a key has {LEAST_KEY_BYTES} to"
            f" {hashlib.blake2b.MAX_KEY_SIZE}; make one with: openssl rand -hex 32"
        )
    return key


def write_rows(root: str, rows: ForgottenRows) -> ForgottenEntry:
    """Write the list of erased rows into a store, and return the manifest's entry."""
    entry = entry_of(rows)
    storage.ensure(storage.join(root, entry.path), to_bytes(rows.to_json()))
    return entry


def entry_of(rows: ForgottenRows) -> ForgottenEntry:
    """Return the manifest's entry of a list of erased rows, written or not."""
    sha256 = hashlib.sha256(to_bytes(rows.to_json())).hexdigest()
    return ForgottenEntry(layout.forgotten(sha256), sha256, len(rows.rows))


def read_rows(root: str, entry: ForgottenEntry) -> ForgottenRows:
    """Return the erased rows of a store.

    Raises SentenceBeamError if the list is missing or was changed.
    """
    path = storage.join(root, entry.path)
    mend = "restore this list of erased rows: without it they would return"
    data = read_named(path, entry.sha256, mend)
    with refuse_damage(f"{path} is no list of erased rows", "restore it"):
        return ForgottenRows.from_json(json.loads(data))


@dataclass(frozen=True)
class Returning:
    """Recognises erased rows that return: by id if rows have their own, else by text."""

    key: bytes
    by_id: bool
    ids: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rows: ForgottenRows, key: bytes) -> "Returning":
        """Return what recognises the rows of a list."""
        texts = frozenset(text for row in rows.rows for text in (row.documents or row.texts))
        return cls(key, rows.by_id, frozenset(row.id for row in rows.rows), texts)

    def find(self, row_id: str, text: bytes) -> str | None:
        """Return the keyed hash by which a row was erased; None if it was not.

        `text` is the hash of its text, or of its whole document.
        """
        if self.by_id:
            name = hash_of_id(self.key, row_id)
            return name if name in self.ids else None
        name = hash_of_text(self.key, text)
        return name if name in self.texts else None


@functools.lru_cache(4)
def returning(root: str, entry: ForgottenEntry, key: bytes | None) -> Returning:
    """Return what recognises the erased rows of a store; a process reads their list once.

    Raises as `read_rows` and `ForgottenRows.key_with` do.
    """
    rows = read_rows(root, entry)
    return Returning.of(rows, rows.key_with(key, root))
