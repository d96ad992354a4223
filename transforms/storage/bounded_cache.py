"""A bounded cache of parts of stored files on local disk; what was not used for longest goes."""

import contextlib
import os
import shutil
import tempfile
import threading
from functools import cached_property

from sentence_beam.transforms.storage.cache import find_cache_folder

SHARE = 0.1  # of the free disk
ROOM = 0.9  # of the bound, to which the cache is cut when it is full


class BoundedCache:
    """Files of at most a tenth of the free disk in all.

    Several processes may share the folder. A file that cannot be written is not cached: the disk
    may be full, or the folder of another user.
    """

    def __init__(self, name: str):
        self._folder = os.path.join(find_cache_folder(), name)
        self._lock = threading.Lock()
        self._bytes: int | None = None

    def get(self, name: str) -> bytes | None:
        """Return the bytes of a file, which counts as used now; None if it is not there."""
        path = os.path.join(self._folder, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, name: str, data: bytes) -> None:
        """Write a file, and remove those not used for longest if there are too many bytes."""
        if len(data) > self._most:
            return
        with contextlib.suppress(OSError), self._lock:
            os.makedirs(self._folder, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as part:
                part.write(data)
            os.replace(part.name, os.path.join(self._folder, name))
            if self._bytes is None:
                self._bytes = sum(size for _, size, _ in self._list_files())
            else:
                self._bytes += len(data)
            if self._bytes > self._most:
                self._bytes = self._cut()

    @cached_property
    def _most(self) -> int:
        parent = self._folder
        while not os.path.exists(parent):
            parent = os.path.dirname(parent)
        return int(SHARE * shutil.disk_usage(parent).free)

    def _cut(self) -> int:
        """Remove the files that were not used for longest, and return the bytes of the others."""
        files = sorted(self._list_files())
        size = sum(size for _, size, _ in files)
        for _, length, path in files:
            if size <= ROOM * self._most:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            size -= length
        return size

    def _list_files(self) -> list[tuple[float, int, str]]:
        """Return the time of the last use, the size and the path of each file."""
        files = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    files.append((status.st_mtime, status.st_size, entry.path))
        return files
