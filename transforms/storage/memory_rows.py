"""Rows in a program's memory, as files: `rows://NAME` is a file in a folder that lasts one run.

Child processes find the folder by a variable of the environment.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from sentence_beam.transforms.storage.base import Entry, Matched, match_file
from sentence_beam.transforms.storage.local import LocalStorage

ROWS = "rows://"
_FOLDER = "SENTENCE_BEAM_ROWS"
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def folder_of_rows() -> Iterator[str]:
    """Provide the folder while the body runs; another thread waits until it ends."""
    with _one_at_a_time, tempfile.TemporaryDirectory(prefix="sentence-beam-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield folder
        finally:
            del os.environ[_FOLDER]


def is_rows(path: str) -> bool:
    """Return whether a path names rows of a program's memory."""
    return path.startswith(ROWS)


class RowsStorage(LocalStorage):
    """Files of rows, read only; those of earlier runs no longer exist."""

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        return match_file(self.stat(pattern))

    def below(self, folder: str) -> list[Entry]:
        return []

    def stat(self, path: str) -> Entry | None:
        entry = super().stat(_locate(path))
        return None if entry is None else replace(entry, path=path)

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        return super().open(_locate(path), entry)

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        return super().read_versioned(_locate(path))


def _locate(path: str) -> str:
    folder = os.environ.get(_FOLDER, os.devnull)  # nothing exists below devnull
    return os.path.join(folder, path.removeprefix(ROWS))
