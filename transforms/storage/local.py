"""Files of this machine, with atomic writes and real conditions.

`put_if_absent` makes a hard link; `replace_if` and `delete_if` compare under a file lock.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.storage.base import (
    Entry,
    FolderError,
    Matched,
    UnsyncedError,
    read_version,
    select_between,
)
from sentence_beam.transforms.storage.globs import Glob, find_beside

# After any other error the file may exist or not.
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
# Lock files, and temporary files of writes that were killed.
LEFT = re.compile(r"(?:.*/)?(?:\..+\.lock|.+\.tmp-[0-9a-f]{32})")
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


class LocalStorage:
    """Files of this machine.

    A reader sees a whole file or none. A crash leaves at most a `.tmp-` file behind.
    """

    pins = False

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        glob = Glob(pattern, hidden)
        if glob.is_literal:
            status = _read_status(pattern)
            found: dict[str, os.stat_result | None] = {} if status is None else {pattern: status}
            return _sort_matches(glob, found, [], [])
        seen = sorted(_walk(glob))
        folders = [path for path in seen if path.endswith("/")]
        taken = {path: glob.takes(path) for path in seen if not path.endswith("/")}
        others = [path for path, is_taken in taken.items() if not is_taken]
        _check_links(glob, others)
        statuses = {path: _read_status(path) for path, is_taken in taken.items() if is_taken}
        return _sort_matches(glob, statuses, others, folders)

    def below(self, folder: str) -> list[Entry]:
        """Return all files below a folder; those deleted meanwhile are left out."""
        entries = []
        for path in sorted(_walk_below(folder)):
            with contextlib.suppress(FileNotFoundError), _naming(path):  # deleted since the listing
                s = os.lstat(path)
                entries.append(Entry(path, s.st_size, "", "", s.st_mtime))
        return entries

    def lists_ranges(self, folder: str) -> bool:
        return False

    def between(self, folder: str, low: str, high: str) -> list[Entry]:
        return select_between(self.below(folder), folder, low, high)

    def stat(self, path: str) -> Entry | None:
        status = _read_status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        return _make_entry(path, status)

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        with _with_path(path):
            return open(path, "rb")

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        try:
            with _with_path(path):
                data = Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data, hashlib.sha256(data).hexdigest()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Link a temporary file to the path; rename it if the disk has no hard links."""
        if os.path.exists(path):
            return False
        temporary = self.write_temporary(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            os.rename(temporary, path)
        finally:
            # The file has its name. A leftover temporary is what a crash leaves too.
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        sync_folder(path)
        return True

    def checksum_of(self, path: str, data: bytes) -> str:
        return ""  # listings have times and inodes, by which carried shards are not compared

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        with self._locking(path):
            if read_version(self, path) != version:
                return False
            os.replace(self.write_temporary(path, data), path)
            sync_folder(path)
            return True

    def delete(self, *paths: str) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def delete_if(self, path: str, version: str) -> bool:
        with self._locking(path):
            if read_version(self, path) != version:
                return False
            self.delete(path)
            return True

    def write_temporary(self, path: str, data: bytes) -> str:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        temporary = f"{path}.tmp-{uuid.uuid4().hex}"
        try:
            with _with_path(path), open(temporary, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
        except OSError:
            self.delete(temporary)
            raise
        return temporary

    @contextlib.contextmanager
    def _locking(self, path: str) -> Iterator[None]:
        folder, name = os.path.split(path)
        os.makedirs(folder or ".", exist_ok=True)
        with open(os.path.join(folder, f".{name}.lock"), "wb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            yield


def _sort_matches(
    glob: Glob, statuses: dict[str, os.stat_result | None], others: list[str], folders: list[str]
) -> Matched:
    """Sort what a glob matches by kind; `statuses` has None for a path that leads to nothing."""
    files: list[Entry] = []
    special: list[str] = []
    broken: list[str] = []
    for path, status in statuses.items():
        if status is None:
            if os.path.islink(path):
                broken.append(path)
        elif stat.S_ISREG(status.st_mode):
            files.append(_make_entry(path, status))
        elif not stat.S_ISDIR(status.st_mode):
            special.append(path)
    hidden = [path for path in folders if _is_hidden(path) and not glob.enters(path)]
    return Matched(
        files,
        find_beside(glob, files, [*others, *hidden]),
        tuple(broken),
        tuple(special),
        tuple(sorted(path.rstrip("/") for path in folders)),
    )


def _is_hidden(folder: str) -> bool:
    return os.path.basename(folder.rstrip("/")).startswith(".")


def _make_entry(path: str, s: os.stat_result) -> Entry:
    """Return the file's entry. Its version is size, times and inode; only a hash proves more."""
    version = f"{s.st_size}-{s.st_mtime_ns}-{s.st_ctime_ns}-{s.st_ino}"
    return Entry(path, s.st_size, "", version, s.st_mtime)


def _read_status(path: str) -> os.stat_result | None:
    """Return the status of what a path leads to, None if there is nothing.

    Raises SentenceBeamError if the system cannot tell.
    """
    with _naming(path):
        try:
            return os.stat(path)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise


def _check_links(glob: Glob, others: Iterable[str]) -> None:
    """Raise SentenceBeamError for a broken link that may have led to a folder with matches."""
    for path in others:
        if glob.enters(path + "/") and os.path.islink(path) and _read_status(path) is None:
            raise SentenceBeamError(
                f"{path} is a link to a folder that does not exist, so its files are unknown; mend "
                "the link or the mount, or remove it"
            )


def _walk(glob: Glob) -> Iterator[str]:
    """Yield the files, links and folders of all folders that a glob enters.

    Folders have a final slash.
    """
    folders = [(os.path.dirname(glob.literal), frozenset[tuple[int, int]]())]
    while folders:
        folder, above = folders.pop()
        above |= _identify(folder)
        for entry in _scan(folder):
            path = os.path.join(folder, entry.name)
            if not _is_folder(entry):
                yield path
                continue
            yield path + "/"
            if glob.enters(path + "/") and not (entry.is_symlink() and _identify(path) <= above):
                folders.append((path, above))


def _identify(folder: str) -> frozenset[tuple[int, int]]:
    """Return device and inode of a folder, which show whether a link leads back to it."""
    status = _read_status(folder)
    return frozenset() if status is None else frozenset({(status.st_dev, status.st_ino)})


def _walk_below(folder: str) -> Iterator[str]:
    """Yield the files and links below a folder, without entering links to folders."""
    folders = [folder]
    while folders:
        parent = folders.pop()
        for entry in _scan(parent):
            path = os.path.join(parent, entry.name)
            if not _is_folder(entry):
                yield path
            elif not entry.is_symlink():
                folders.append(path)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """Return what a folder holds; nothing if it does not exist.

    Raises SentenceBeamError if it cannot be listed.
    """
    with _naming(folder):
        try:
            with os.scandir(folder or ".") as entries:
                return list(entries)
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a name is a folder or a link to one.

    Raises SentenceBeamError if the system cannot tell.
    """
    if not entry.is_symlink():
        with _naming(entry.path):
            return entry.is_dir()
    status = _read_status(entry.path)
    return status is not None and stat.S_ISDIR(status.st_mode)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn errors of the system into one line with the path, except FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SentenceBeamError(
            f"{path} cannot be read ({error.strerror}); mend its permissions or the mount, or name "
            "other files"
        ) from error


@contextlib.contextmanager
def _with_path(path: str) -> Iterator[None]:
    """Add the file's path to errors of an open file, which the system leaves out.

    Raises FolderError if the path is a folder.
    """
    try:
        yield
    except IsADirectoryError as error:
        raise FolderError(f"{path} is a folder where a file should be; move it away") from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def sync_folder(path: str) -> None:
    """Make a new name survive a power cut. Raises UnsyncedError if the disk does not confirm it."""
    try:
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise UnsyncedError(error.errno, error.strerror, path) from error
