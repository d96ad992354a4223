"""Files of this machine: atomic writes and real conditions (a hard link, a comparison under a file
lock).
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

from transforms.base.errors import SentenceBeamError
from transforms.storage.base import Entry, FolderError, Matched, UnsyncedError
from transforms.storage.globs import Glob, beside

# all others leave open whether there is a file
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
# files that a write makes beside its own
LEFT = re.compile(r"(?:.*/)?(?:\..+\.lock|.+\.tmp-[0-9a-f]{32})")
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


class LocalStorage:
    """Files of this machine. A reader sees a whole file or none; a crash leaves at most a `.tmp-`
    file behind.
    """

    pins = False

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        glob = Glob(pattern, hidden)
        if glob.is_literal:
            status = _status(pattern)
            return _matched(glob, {pattern: status} if status else {}, [], [])
        seen = sorted(_seen(glob))
        folders = [path for path in seen if path.endswith("/")]
        taken = {path: glob.takes(path) for path in seen if not path.endswith("/")}
        others = [path for path, is_taken in taken.items() if not is_taken]
        _check_links(glob, others)
        found = {path: _status(path) for path, is_taken in taken.items() if is_taken}
        return _matched(glob, found, others, folders)

    def below(self, folder: str) -> list[Entry]:
        entries = []
        for path in sorted(_files_below(folder)):
            with contextlib.suppress(FileNotFoundError), _named(path):  # gone since it was listed
                s = os.lstat(path)
                entries.append(Entry(path, s.st_size, "", "", s.st_mtime))
        return entries

    def stat(self, path: str) -> Entry | None:
        found = _status(path)
        return _entry(path, found) if found and stat.S_ISREG(found.st_mode) else None

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
        if os.path.exists(path):
            return False
        temporary = self._write_temporary(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            os.rename(temporary, path)
        finally:
            # the file has its name; what stays is what a crash leaves
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _sync_folder(path)
        return True

    def checksum_of(self, path: str, data: bytes) -> str:
        return ""  # it is one of times and numbers, which carried shards are not compared by

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        with self._locked(path):
            current = self.read_versioned(path)
            if (current[1] if current else None) != version:
                return False
            os.replace(self._write_temporary(path, data), path)
            _sync_folder(path)
            return True

    def delete(self, *paths: str) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def delete_if(self, path: str, version: str) -> bool:
        with self._locked(path):
            current = self.read_versioned(path)
            if current is None or current[1] != version:
                return False
            self.delete(path)
            return True

    def _write_temporary(self, path: str, data: bytes) -> str:
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
    def _locked(self, path: str) -> Iterator[None]:
        folder, name = os.path.split(path)
        os.makedirs(folder or ".", exist_ok=True)
        with open(os.path.join(folder, f".{name}.lock"), "wb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            yield


def _matched(
    glob: Glob, found: dict[str, os.stat_result | None], others: list[str], folders: list[str]
) -> Matched:
    """What a glob names of `found`, files and links with what they lead to, among other files and
    folders.
    """
    there = {path: s for path, s in found.items() if s is not None}
    files = [_entry(path, s) for path, s in there.items() if stat.S_ISREG(s.st_mode)]
    special = [
        path
        for path, s in there.items()
        if not stat.S_ISREG(s.st_mode) and not stat.S_ISDIR(s.st_mode)
    ]
    broken = [path for path, s in found.items() if s is None and os.path.islink(path)]
    hidden = [path for path in folders if _is_hidden(path) and not glob.enters(path)]
    names = sorted(path.rstrip("/") for path in folders)
    return Matched(
        files, beside(glob, files, [*others, *hidden]), tuple(broken), tuple(special), tuple(names)
    )


def _is_hidden(folder: str) -> bool:
    return os.path.basename(folder.rstrip("/")).startswith(".")


def _entry(path: str, s: os.stat_result) -> Entry:
    """The file's entry; its version is size, times and inode. Only a hash of the bytes would prove
    more.
    """
    return Entry(
        path, s.st_size, "", f"{s.st_size}-{s.st_mtime_ns}-{s.st_ctime_ns}-{s.st_ino}", s.st_mtime
    )


def _status(path: str) -> os.stat_result | None:
    """The status of what a path leads to, None where there is nothing. Raises SentenceBeamError
    where it is unknown.
    """
    with _named(path):
        try:
            return os.stat(path)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise


def _check_links(glob: Glob, others: Iterable[str]) -> None:
    """Raise SentenceBeamError for a link to nothing where there may have been a folder with files
    that a glob names.
    """
    for path in others:
        if glob.enters(path + "/") and os.path.islink(path) and _status(path) is None:
            raise SentenceBeamError(
                f"{path} is a link to a folder that is not there, so what is in it is unknown; mend"
                " the link or the mount, or remove it"
            )


def _seen(glob: Glob) -> Iterator[str]:
    """Paths of files and links in the folders that a glob enters, and of all folders there, with a
    final slash.
    """
    folders = [(os.path.dirname(glob.literal), frozenset[tuple[int, int]]())]
    while folders:
        folder, above = folders.pop()
        above |= _identity(folder)
        for entry in _scan(folder):
            path = os.path.join(folder, entry.name)
            if not _is_folder(entry):
                yield path
                continue
            yield path + "/"
            if glob.enters(path + "/") and not (entry.is_symlink() and _identity(path) <= above):
                folders.append((path, above))


def _identity(folder: str) -> frozenset[tuple[int, int]]:
    """Device and inode of a folder, by which a linked folder that leads back to one above it is
    known.
    """
    found = _status(folder)
    return frozenset({(found.st_dev, found.st_ino)} if found else ())


def _files_below(folder: str) -> Iterator[str]:
    """Paths of the files and links below a folder; linked folders are left alone."""
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
    """What a folder holds, nothing where there is none. Raises SentenceBeamError where it cannot be
    listed.
    """
    with _named(folder):
        try:
            with os.scandir(folder or ".") as entries:
                return list(entries)
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether a name is a folder or a link to one. Raises SentenceBeamError where that is
    unknown.
    """
    if not entry.is_symlink():
        with _named(entry.path):
            return entry.is_dir()
    found = _status(entry.path)
    return found is not None and stat.S_ISDIR(found.st_mode)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors of the system as one line with the path; FileNotFoundError as it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SentenceBeamError(
            f"{path} cannot be looked at ({error.strerror}), so what is there is unknown; mend its"
            " permissions or the mount, or name other files"
        ) from error


@contextlib.contextmanager
def _with_path(path: str) -> Iterator[None]:
    """Errors of reading or writing with the path of the file, which the system leaves out once it
    is open.

    Raises FolderError where a folder has the file's name.
    """
    try:
        yield
    except IsADirectoryError as error:
        raise FolderError(f"{path} is a folder where a file should be; move it away") from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _sync_folder(path: str) -> None:
    """Make a new name survive a power cut. Raises UnsyncedError where the disk does not confirm
    that.
    """
    try:
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise UnsyncedError(error.errno, error.strerror, path) from error
