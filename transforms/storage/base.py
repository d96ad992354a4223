"""The record of a stored file, the operations of every back end, and paths."""

import os
import re
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.values import StrPath, as_text

BLOCK = 1 << 20
SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")


class FolderError(SentenceBeamError):
    """The path is a directory; retrying will not help."""


class OutsideFileError(OSError):
    """The file has none of the bytes that were requested."""


class UnsyncedError(OSError):
    """The file has its name, but the disk did not confirm that it survives a power cut."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored file: full path, size in bytes, checksum and version.

    `checksum` covers the content, or is empty if a listing has none. `version` changes with every
    write. `modified` is the time of writing, in seconds since 1970 by the storage's clock.
    """

    path: str
    size: int
    checksum: str
    version: str
    modified: float = 0.0


class Matched(NamedTuple):
    """The files that a glob matches, sorted by path, and what lies beside them.

    `beside`: other files in the same folders, and hidden folders there that were not entered (these
    with a final slash). `broken`: matching links without a target. `special`: matching pipes,
    sockets and devices. `folders`: all folders seen below the glob's fixed part, sorted.
    """

    files: list[Entry]
    beside: list[str]
    broken: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


class Storage(Protocol):
    """The operations on files for the rest of the project; paths are full paths or URLs.

    If `pins` is true, `open` reads exactly the version that it is given, even if the file is
    overwritten meanwhile. Otherwise the caller compares the versions before and after reading.
    """

    @property
    def pins(self) -> bool: ...

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        """Return the files that a glob matches (see globs), and what lies beside them.

        Follows links to folders, but not back into a folder above. Raises SentenceBeamError for
        anything that would go unnoticed: a broken link that may have led to a folder, or a folder
        that cannot be listed. Raises OptionError for a malformed pattern.
        """

    def below(self, folder: str) -> list[Entry]:
        """Return all files below a folder, sorted by path, from one listing.

        Entries have checksums and versions only if listings of the storage have them. Raises
        SentenceBeamError if a folder cannot be listed.
        """

    def lists_ranges(self, folder: str) -> bool:
        """Return whether a listing of some names of a folder requests these alone."""

    def between(self, folder: str, low: str, high: str) -> list[Entry]:
        """Return the files directly in a folder with names after `low` up to `high`, as `below`.

        "" is no bound.
        """

    def stat(self, path: str) -> Entry | None:
        """Return the file's entry, or None if there is no file.

        Raises SentenceBeamError if the storage cannot tell.
        """

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        """Return a seekable binary reader of the bytes as stored, not decompressed.

        `entry` is the file's, if known. An entry without a version gives only the size, which saves
        a request; the current version is read then. Raises FileNotFoundError, and InputChangedError
        if the storage pins versions and this one is gone.
        """

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """Return the bytes and their version for `replace_if`, or None if there is no file."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a whole file, never over another one; return False if there is one already.

        If the answer to a write gets lost (gs://, s3://), the client retries and finds its own
        file. A file of equal bytes therefore counts as written, whoever wrote it: a caller who must
        be the only writer puts a nonce into the bytes. Raises UnsyncedError if the file is written
        but may yet be lost.
        """

    def checksum_of(self, path: str, data: bytes) -> str:
        """Return the checksum that listings have for a file just written with these bytes.

        Empty if listings have none.
        """

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Replace the file only while it is still `version` (None: absent); else return False.

        A file that holds equal bytes by now counts as written, as for `put_if_absent`. Raises
        UnsyncedError if the file is replaced but may yet be lost.
        """

    def delete(self, *paths: str) -> None:
        """Remove files; missing ones are no error."""

    def delete_if(self, path: str, version: str) -> bool:
        """Remove the file only while it is still `version`; else return False."""


def read_version(storage: Storage, path: str) -> str | None:
    """Return the version of a file for `replace_if`, or None if there is no file."""
    current = storage.read_versioned(path)
    return None if current is None else current[1]


def get_checksum(entry: Entry | None) -> str:
    """Return the checksum of an entry, empty if there is no file."""
    return "" if entry is None else entry.checksum


def select_between(entries: list[Entry], folder: str, low: str, high: str) -> list[Entry]:
    """Return those entries of a folder's listing whose names come after `low`, up to `high`."""
    start = len(folder.rstrip("/")) + 1
    return [
        entry
        for entry in entries
        if low < entry.path[start:] and not (high and entry.path[start:] > high)
    ]


def match_file(entry: Entry | None) -> Matched:
    """Return the match of a pattern without wildcards: one file, or none."""
    return Matched([] if entry is None else [entry], [])


def is_local(path: str) -> bool:
    """Return whether the path is on this machine, not a URL."""
    return SCHEME.match(path.strip()) is None


def split_url(url: str) -> tuple[str, str]:
    """Split a URL such as gs://bucket/name into the bucket and the object's name."""
    bucket, _, name = url.partition("://")[2].partition("/")
    return bucket, name


def absolute(path: StrPath) -> str:
    """Return the path as workers see it: absolute if it is local, else without a final slash."""
    path = as_text(path)
    if is_local(path):
        return os.path.abspath(os.path.expanduser(path))
    return path.rstrip("/")


def join(root: str, *parts: str) -> str:
    """Return a path below a root, with `/` between the parts."""
    return "/".join([root.rstrip("/"), *parts])
