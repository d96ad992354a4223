"""The storage of a path, and operations on whole files in any storage.

Back ends are imported when a path needs them: Beam alone takes two seconds, which is long for a
command that runs no pipeline.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import cache

from sentence_beam.transforms.base.errors import MissingExtraError
from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.base.imports import pause_collector
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.storage.base import BLOCK, Entry, Storage, is_local, read_version
from sentence_beam.transforms.storage.local import LEFT, LocalStorage
from sentence_beam.transforms.storage.memory_rows import RowsStorage, is_rows
from sentence_beam.transforms.storage.ranged import RangedReader

EXTRAS = {"gs": "gcp", "s3": "aws"}  # by scheme
TRIES = 5  # to write a file that others write too


def threads_may_read(path: str) -> bool:
    """Return whether Arrow may read a file on threads of its own.

    Python reads remote files, and a thread that waits for Python while the interpreter ends aborts
    the process.
    """
    return is_local(path)


def storage_of(path: str) -> Storage:
    """Return the storage of a path. Raises MissingExtraError if its scheme needs an extra."""
    if is_local(path):
        return LocalStorage()
    if is_rows(path):
        return RowsStorage()
    try:
        with keep_root_logger():
            return import_back_end(path.split("://")[0])(path)
    except (ImportError, ValueError) as error:
        raise _explain_missing(path) from error


@cache
def import_back_end(scheme: str) -> Callable[[str], Storage]:
    """The maker of storages for the paths of a remote scheme, imported once."""
    with pause_collector():
        if scheme == "gs":
            from sentence_beam.transforms.storage.gcs import GcsStorage  # needs an extra

            return lambda path: GcsStorage()
        if scheme == "s3":
            from sentence_beam.transforms.storage.s3 import S3Storage

            return lambda path: S3Storage()
        from sentence_beam.transforms.storage.beam_filesystem import make_beam_storage

        return make_beam_storage


def _explain_missing(path: str) -> MissingExtraError:
    scheme = path.split("://")[0]
    mend = "give a local path, gs:// or s3://"
    if scheme in EXTRAS:
        mend = format_pip_line(EXTRAS[scheme])
    elif scheme == "azfs":
        mend = "pip install 'apache-beam[azure]'"
    return MissingExtraError(f"{path}: no filesystem for {scheme}:// here; {mend}")


def read_bytes(path: str) -> bytes:
    """Return the bytes of a whole file. Raises FileNotFoundError."""
    stored = storage_of(path).read_versioned(path)
    if stored is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return stored[0]


def read_range(path: str, start: int, stop: int) -> bytes:
    """Return the bytes from `start` up to `stop`, in one request; fewer if the file is shorter.

    Raises FileNotFoundError, and OSError if the file has none of these bytes.
    """
    with storage_of(path).open(path, Entry(path, stop, checksum="", version="")) as file:
        if isinstance(file, RangedReader):
            return file.fetch(start, stop)
        file.seek(start)
        return file.read(stop - start)


def replace(path: str, data: bytes) -> bool:
    """Write a whole file over the current one, if any; return False if another writer won."""
    place = storage_of(path)
    return place.replace_if(path, data, read_version(place, path))


def ensure(path: str, data: bytes) -> None:
    """Write a file that is named by its content, replacing one of that name with other bytes.

    Raises OSError if others keep writing it.
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
    """Write a whole file over the current one, if any. Raises OSError if another writer won."""
    if not replace(path, data):
        raise OSError(f"{path} was written by another run at the same time")


def delete_below(folder: str) -> None:
    """Remove the files below a folder, from one listing, and a local folder if it is then empty."""
    place = storage_of(folder)
    place.delete(*(entry.path for entry in place.below(folder)))
    if is_local(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def delete_empty_folders(path: str, root: str) -> None:
    """Remove the local folders that lead from `root` to a path, as far up as they are empty.

    Object storage has no folders.
    """
    if not is_local(root):
        return
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):
        while len(folder) >= len(root):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def names_below(folder: str) -> list[str]:
    """Return the files below a folder, relative to it, sorted.

    Leaves out lock files and the leftovers of killed writes.
    """
    names = (entry.path.removeprefix(f"{folder}/") for entry in storage_of(folder).below(folder))
    return [name for name in names if not LEFT.fullmatch(name)]


def time_of_storage(path: str) -> float:
    """Return the storage's present time, in seconds since 1970.

    It is the time of a file that is written beside the path and removed again.
    """
    place = storage_of(path)
    probe = f"{path}.tmp-{uuid.uuid4().hex}"
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
    """Give a local path with the bytes of a stored file: itself, or a copy for the block."""
    if is_local(path):
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy, storage_of(path).open(path) as source:
        shutil.copyfileobj(source, copy, BLOCK)
        copy.flush()
        yield copy.name


def checksum_of(entry: Entry) -> str:
    """Return the content checksum: the storage's own, or the sha256 of a local file."""
    return entry.checksum or sha256_of(entry.path)[0]


def sha256_of(path: str) -> tuple[str, int]:
    """Return sha256 in hex and size of a stored file. Raises FileNotFoundError."""
    digest = hashlib.sha256()
    size = 0
    with storage_of(path).open(path) as f:
        while block := f.read(BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size
