"""Files of this machine: atomic writes and real conditions (a hard link, a comparison under a file lock)."""

import contextlib
import errno
import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from transforms.errors import SentenceBeamError
from transforms.storage.base import Entry, literal_part, names_of

NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


class LocalStorage:
    """Files of this machine. A reader sees a whole file or none; a crash leaves at most a `.tmp-` file behind."""

    pins = False

    def match(self, pattern: str) -> list[Entry]:
        return [self._entry(path) for path in sorted(_matching(pattern)) if _is_file(path)]

    def below(self, folder: str) -> list[Entry]:
        found = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
        entries = []
        for path in sorted(found):
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                s = os.lstat(path)
                entries.append(Entry(path, s.st_size, "", "", s.st_mtime))
        return entries

    def stat(self, path: str) -> Entry | None:
        return self._entry(path) if os.path.isfile(path) else None

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        return open(path, "rb")

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        try:
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
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_folder(path)
        return True

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

    def _entry(self, path: str) -> Entry:
        """The file's entry; its version is size, times and inode. Only a hash of the bytes would prove more."""
        s = os.stat(path)
        return Entry(path, s.st_size, "", f"{s.st_size}-{s.st_mtime_ns}-{s.st_ctime_ns}-{s.st_ino}", s.st_mtime)

    def _write_temporary(self, path: str, data: bytes) -> str:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        temporary = f"{path}.tmp-{uuid.uuid4().hex}"
        try:
            with open(temporary, "wb") as f:
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


def _matching(pattern: str) -> Iterator[str]:
    """Paths that a pattern names, as Beam matches; unlike there, links to nothing are among those that a glob names."""
    literal = literal_part(pattern)
    if literal == pattern:
        yield from [pattern] if os.path.exists(pattern) else []
        return
    matches = names_of(pattern).fullmatch
    for parent, _, names in os.walk(os.path.dirname(literal)):
        yield from (path for path in (os.path.join(parent, name) for name in names) if matches(path))


def _is_file(path: str) -> bool:
    if os.path.islink(path) and not os.path.exists(path):
        raise SentenceBeamError(f"{path} is a link to a file that is not there; mend the link or remove it")
    return os.path.isfile(path)


def _sync_folder(path: str) -> None:
    """Make a new name survive a power cut."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
