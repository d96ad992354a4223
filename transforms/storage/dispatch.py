"""The storage of a path, and operations on whole files in any storage.

Back ends are imported when a path needs them: Beam alone takes two seconds, which is long for a command that runs no
pipeline.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator

from transforms.base.errors import MissingExtraError
from transforms.base.extras import pip_line
from transforms.base.imports import uncollected
from transforms.base.logs import keep_root_logger
from transforms.storage.base import BLOCK, Entry, Storage, is_local
from transforms.storage.local import LEFT, LocalStorage
from transforms.storage.ranged import RangedReader
from transforms.storage.rows import RowsStorage, is_rows

EXTRAS = {"gs": "gcp", "s3": "aws"}  # of schemes
TRIES = 5  # to write a file that others write too


def threads_may_read(path: str) -> bool:
    """Whether Arrow may read a file on threads of its own.

    Not a remote one: Python reads it, and a thread that waits for Python while the interpreter ends aborts the process.
    """
    return is_local(path)


def storage_of(path: str) -> Storage:
    """The storage that holds a path. Raises MissingExtraError where no filesystem is installed for its scheme."""
    if is_local(path):
        return LocalStorage()
    if is_rows(path):
        return RowsStorage()
    try:
        with uncollected(), keep_root_logger():
            return _remote(path)
    except (ImportError, ValueError) as error:
        raise _no_filesystem(path) from error


def _remote(path: str) -> Storage:
    if path.startswith("gs://"):
        from transforms.storage.gcs import GcsStorage  # only where the extra is installed

        return GcsStorage()
    if path.startswith("s3://"):
        from transforms.storage.s3 import S3Storage

        return S3Storage()
    from transforms.storage.beam_filesystem import storage_by_beam

    return storage_by_beam(path)


def _no_filesystem(path: str) -> MissingExtraError:
    scheme = path.split("://")[0]
    if scheme in EXTRAS:
        mend = pip_line(EXTRAS[scheme])
    else:
        mend = "pip install 'apache-beam[azure]'" if scheme == "azfs" else "give a local path, gs:// or s3://"
    return MissingExtraError(f"{path}: no filesystem for {scheme}:// here; {mend}")


def read_bytes(path: str) -> bytes:
    """The bytes of a whole file. Raises FileNotFoundError."""
    found = storage_of(path).read_versioned(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found[0]


def read_range(path: str, start: int, stop: int) -> bytes:
    """The bytes of a file from `start` up to `stop`, in one request; fewer where it is shorter.

    Raises FileNotFoundError, and OSError where a storage has none of these bytes.
    """
    with storage_of(path).open(path, Entry(path, stop, checksum="", version="")) as file:
        if isinstance(file, RangedReader):
            return file.fetched(start, stop)
        file.seek(start)
        return file.read(stop - start)


def replace(path: str, data: bytes) -> bool:
    """Write a file whole, in place of the one that is there, if any; False where another writer was faster."""
    place = storage_of(path)
    current = place.read_versioned(path)
    return place.replace_if(path, data, current[1] if current else None)


def ensure(path: str, data: bytes) -> None:
    """Write a file that is named by what it holds: where one of that name has other bytes, these replace them.

    Raises OSError where others write it again and again.
    """
    place = storage_of(path)
    for _ in range(TRIES):
        if place.put_if_absent(path, data):
            return
        current = place.read_versioned(path)
        if current and (current[0] == data or place.replace_if(path, data, current[1])):
            return
    raise OSError(f"{path} can be neither written nor read as it was meant to be")


def overwrite(path: str, data: bytes) -> None:
    """Write a file whole, in place of the one that is there, if any. Raises OSError where another writer was faster."""
    if not replace(path, data):
        raise OSError(f"{path} was written by another run at the same time")


def delete_below(folder: str) -> None:
    """Remove the files below a folder, listed once, and on this machine the folder too if it holds no other folder."""
    place = storage_of(folder)
    place.delete(*(entry.path for entry in place.below(folder)))
    if is_local(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def names_below(folder: str) -> list[str]:
    """The files below a folder, relative to it, sorted; without what a write that was killed leaves there."""
    names = (entry.path.removeprefix(f"{folder}/") for entry in storage_of(folder).below(folder))
    return [name for name in names if not LEFT.fullmatch(name)]


def time_of_storage(path: str) -> float:
    """The present time, in seconds since 1970, by the clock of the storage that holds a path.

    It is the time of a file that is written beside the path and removed again.
    """
    place, probe = storage_of(path), f"{path}.tmp-{uuid.uuid4().hex}"
    place.put_if_absent(probe, probe.encode())
    try:
        entry = place.stat(probe)
    finally:
        place.delete(probe)
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), probe)
    return entry.modified


@contextlib.contextmanager
def on_local_disk(path: str) -> Iterator[str]:
    """The path of a local file with the bytes of a stored one: itself, or a copy that is kept as long as the block."""
    if is_local(path):
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy, storage_of(path).open(path) as source:
        shutil.copyfileobj(source, copy, BLOCK)
        copy.flush()
        yield copy.name


def checksum_of(entry: Entry) -> str:
    """The content checksum: the store's own, or for local files the sha256 of the bytes."""
    return entry.checksum or sha256_of(entry.path)[0]


def sha256_of(path: str) -> tuple[str, int]:
    """sha256 in hex and size of a stored file, read in blocks. Raises FileNotFoundError."""
    digest, size = hashlib.sha256(), 0
    with storage_of(path).open(path) as f:
        while block := f.read(BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size
