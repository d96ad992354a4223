"""Files of an index; a file that is read as a whole is compared with its sha256."""

import contextlib
from collections.abc import Iterator
from hashlib import sha256 as hashed

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError, cite
from sentence_beam.transforms.storage.base import OutsideFileError


def read(path: str, sha256: str) -> bytes:
    """Return the bytes of a file; raise DamagedIndexError if it is missing or was changed."""
    with _naming_missing(path):
        data = storage.read_bytes(path)
    if hashed(data).hexdigest() != sha256:
        raise changed(path)
    return data


def part(path: str, start: int, stop: int) -> bytes:
    """Return the bytes of a file from `start` up to `stop`, unchecked.

    Raises DamagedIndexError if the file is missing or shorter, or if other bytes were sent.
    """
    with _naming_missing(path):
        try:
            data = storage.read_range(path, start, stop)
        except OutsideFileError as error:
            raise changed(path) from error
    if len(data) > stop - start:
        raise DamagedIndexError(
            f"{path}: the storage sent {len(data):,} bytes in place of {stop - start:,}; it does"
            f" not serve parts of files, copy the index whole ({cite('local=True')})"
        )
    if len(data) < stop - start:
        raise changed(path)
    return data


def check(path: str, sha256: str, checksum: str = "") -> None:
    """Raise DamagedIndexError if a file is missing or has another sha256.

    `checksum` is the storage's for the file that was written, "" if it has none. While the storage
    still reports the same, nothing is read.
    """
    entry = storage.storage_of(path).stat(path) if checksum else None
    if entry is not None and entry.checksum == checksum:
        return
    with _naming_missing(path):
        digest = storage.sha256_of(path)[0]
    if digest != sha256:
        raise changed(path)


@contextlib.contextmanager
def on_disk(path: str, sha256: str) -> Iterator[str]:
    """Yield the path of a local file with the bytes of a stored one, checked as `check` does."""
    with contextlib.ExitStack() as stack:
        with _naming_missing(path):
            copy = stack.enter_context(storage.on_local_disk(path))
            digest = storage.sha256_of(copy)[0]
        if digest != sha256:
            raise changed(path)
        yield copy


@contextlib.contextmanager
def _naming_missing(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedIndexError(f"{path} is missing") from error


def changed(path: str) -> DamagedIndexError:
    """The error for a file of an index that is not what was written."""
    return DamagedIndexError(f"{path} was changed after it was written (sha256 differs)")
