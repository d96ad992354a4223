"""Digests of texts, files and JSON values."""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base import progress

ROW_HASH_BYTES = 16
_ROW_HASH = hashlib.blake2b(digest_size=ROW_HASH_BYTES)
# differs from the hash of a text
_PIECES_HASH = hashlib.blake2b(digest_size=ROW_HASH_BYTES, person=b"pieces")
_BLOCK = 1 << 20


def canonical_json(value: Any) -> str:
    """The canonical text of a JSON value: sorted keys, no blanks, no escapes, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_text(text: str) -> str:
    """sha256 in hex of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path: str | Path) -> str:
    """sha256 in hex of a local file's bytes.

    The file is read once, unless its size, times or inode change.
    """
    stat = os.stat(path)
    identity = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    return _hash_file(str(path), identity)


@lru_cache(64)
def _hash_file(path: str, _identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with progress.stage("reading the model's files for their hashes"), open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def row_hash(text: str) -> bytes:
    """The blake2b-128 digest (16 bytes) of the exact UTF-8 text."""
    return row_hashes((text,))[0]


def pieces_hashes(documents: Iterable[Iterable[tuple[str, int]]]) -> list[bytes]:
    """The row hashes of documents whose vector is made of all their pieces.

    A piece is a text with its weight. The hash is the blake2b-128 digest over each piece's weight
    and length in bytes, 8 bytes each, and its UTF-8 text: no other pieces give the same bytes.
    """
    hashes = []
    for pieces in documents:
        digest = _PIECES_HASH.copy()
        for text, weight in pieces:
            data = text.encode("utf-8")
            digest.update(weight.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data)
        hashes.append(digest.digest())
    return hashes


def row_hashes(texts: Iterable[str]) -> list[bytes]:
    """The row hashes of texts, in their order."""
    new_digest = _ROW_HASH.copy  # faster than the constructor
    hashes = []
    for text in texts:
        digest = new_digest()
        digest.update(text.encode("utf-8"))
        hashes.append(digest.digest())
    return hashes
