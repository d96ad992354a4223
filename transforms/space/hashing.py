"""Digests of texts, files and JSON values."""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from transforms.base import progress

ROW_HASH_BYTES = 16
_ROW_HASH = hashlib.blake2b(digest_size=ROW_HASH_BYTES)
_PIECES_HASH = hashlib.blake2b(digest_size=ROW_HASH_BYTES, person=b"pieces")  # never that of a text
_BLOCK = 1 << 20


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value: keys sorted, no blanks, text unescaped, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_text(text: str) -> str:
    """sha256 in hex of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path: str | Path) -> str:
    """sha256 in hex of a local file's bytes, read once for as long as size, times and inode stay
    the same.
    """
    found = os.stat(path)
    return _sha256_file(
        str(path), (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    )


@lru_cache(64)
def _sha256_file(path: str, _identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with progress.stage("reading the model's files for their hashes"), open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def row_hash(text: str) -> bytes:
    """The blake2b-128 digest (16 bytes) of the exact UTF-8 text."""
    return row_hashes((text,))[0]


def pieces_hashes(documents: Iterable[Iterable[tuple[str, int]]]) -> list[bytes]:
    """The row hashes of documents whose vector is one of all their pieces, given as texts with a
    weight each.

    The blake2b-128 digest over each piece's weight and length in bytes, 8 bytes each, and its UTF-8
    text: no other pieces give the same bytes.
    """
    found = []
    for pieces in documents:
        digest = _PIECES_HASH.copy()
        for text, weight in pieces:
            data = text.encode("utf-8")
            digest.update(weight.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data)
        found.append(digest.digest())
    return found


def row_hashes(texts: Iterable[str]) -> list[bytes]:
    """The row hashes of texts, in their order."""
    begun = _ROW_HASH.copy  # faster than beginning one
    found = []
    for text in texts:
        digest = begun()
        digest.update(text.encode("utf-8"))
        found.append(digest.digest())
    return found
