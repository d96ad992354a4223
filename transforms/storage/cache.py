"""A cache of stored files on local disk, kept between commands and named by their sha256."""

import hashlib
import os
import tempfile
from typing import BinaryIO

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError

PART = 16 << 20


def cache_file(path: str, sha256: str) -> str:
    """Return a local file with the bytes of a stored one: itself, or a copy in the user's cache.

    A file or copy that exists already is not read. Raises DamagedIndexError if the stored file is
    missing or has another sha256, and SentenceBeamError if the cache cannot be written.
    """
    if storage.is_local(path):
        return path
    copy = os.path.join(find_cache_folder(), sha256 + os.path.splitext(path)[1])
    if not os.path.exists(copy):
        try:
            source = storage.storage_of(path).open(path)
        except FileNotFoundError as error:
            raise DamagedIndexError(f"{path} is missing") from error
        try:
            with source:
                _download(source, path, sha256, copy)
        except OSError as error:
            raise SentenceBeamError(
                f"{copy} cannot be written ({error.strerror or error}); set XDG_CACHE_HOME to a "
                "folder with room for it"
            ) from error
    return copy


def find_cache_folder() -> str:
    """Return the folder of cached files, in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "sentence-beam")


def _download(source: BinaryIO, path: str, sha256: str, copy: str) -> None:
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(copy), delete=False) as part:
        try:
            digest = hashlib.sha256()
            while block := source.read(PART):
                digest.update(block)
                part.write(block)
            part.close()
            if digest.hexdigest() != sha256:
                raise DamagedIndexError(f"{path} was changed after it was written (sha256 differs)")
            os.replace(part.name, copy)
        finally:
            if os.path.exists(part.name):
                os.unlink(part.name)
