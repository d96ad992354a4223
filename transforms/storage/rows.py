"""Rows that a program holds, as files: `rows://NAME` is a file of that name in a folder that is
there for one run.

Processes that this one starts find the folder too, by a variable of the environment.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from transforms.storage.base import Entry, Matched
from transforms.storage.local import LocalStorage

ROWS = "rows://"
_FOLDER = "SENTENCE_BEAM_ROWS"
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def folder_of_rows() -> Iterator[str]:
    """Give the folder for the files while the body runs; another thread waits until it ends."""
    with _one_at_a_time, tempfile.TemporaryDirectory(prefix="sentence-beam-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield folder
        finally:
            del os.environ[_FOLDER]


def is_rows(path: str) -> bool:
    """Whether a path is that of rows which a program holds, or held."""
    return path.startswith(ROWS)


class RowsStorage(LocalStorage):
    """Files of rows, to be read: those of earlier runs are not there any more."""

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        entry = self.stat(pattern)
        return Matched([entry] if entry else [], [])

    def below(self, folder: str) -> list[Entry]:
        return []

    def stat(self, path: str) -> Entry | None:
        found = super().stat(_place(path))
        return replace(found, path=path) if found else None

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        return super().open(_place(path), entry)

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        return super().read_versioned(_place(path))


def _place(path: str) -> str:
    folder = os.environ.get(_FOLDER, os.devnull)  # without one nothing is there
    return os.path.join(folder, path.removeprefix(ROWS))
