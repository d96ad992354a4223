"""The base of storage: the record of a stored file, the operations that every back end has, and
paths.
"""

import os
import re
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

from transforms.base.errors import SentenceBeamError
from transforms.base.values import StrPath, as_text

BLOCK = 1 << 20
SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")


class FolderError(SentenceBeamError):
    """A folder has the name of a file that is to be read; that stays so however often it is
    tried.
    """


class UnsyncedError(OSError):
    """A file that has its name, whose disk did not confirm that the name outlives a power cut."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored file: full path, bytes, checksum (content where the store knows it) and version
    (changes on write).

    `modified` is when it was written, in seconds since 1970 by the storage's clock.
    """

    path: str
    size: int
    checksum: str
    version: str
    modified: float = 0.0


class Matched(NamedTuple):
    """The files that a glob names, sorted by path; and what lies beside them.

    `beside` are the paths of other files in the same folders, and of hidden folders there, with a
    final slash, that were not entered. `broken` are links that the glob names and that lead to
    nothing, `special` are the pipes, sockets and devices that it names. `folders` are the folders
    below its fixed part that were seen, whatever it names, sorted.
    """

    files: list[Entry]
    beside: list[str]
    broken: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


class Storage(Protocol):
    """The operations on files for the rest of the project; paths are full paths or URLs.

    `pins` says that `open` reads the very version it is given, whatever is written over it
    meanwhile; elsewhere the versions before and after reading have to be compared.
    """

    @property
    def pins(self) -> bool: ...

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        """The files that a glob names (see globs), and what lies beside them.

        Linked folders are followed, but not back into a folder above. Raises SentenceBeamError for
        what would be left out unnoticed: a link to nothing where there may have been a folder, a
        folder that cannot be listed; OptionError for a pattern that has no meaning.
        """

    def below(self, folder: str) -> list[Entry]:
        """All files below a folder, sorted by path, in one listing; checksums and versions where a
        listing has them.

        Raises SentenceBeamError where a folder cannot be listed: only what is known not to be there
        is left out.
        """

    def stat(self, path: str) -> Entry | None:
        """The file's entry, or None where there is no file. Raises SentenceBeamError where that
        cannot be known.
        """

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        """A seekable binary reader of the bytes as stored (nothing decompressed); `entry` is the
        file's, if known.

        An entry without a version says the size alone, which spares asking for it; the file that
        stands is read then.

        Raises FileNotFoundError; InputChangedError where storage pins and that version is gone.
        """

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """The bytes and their version for `replace_if`, or None where there is no file."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file whole, never over another; False where there is one already.

        Where the answer to a write may get lost (gs://, s3://) the client writes once more, and
        finds its own file: so a file of equal bytes counts as written, whoever wrote it. True then
        says that the file holds these bytes, not that nobody else wrote them; a caller who has to
        be the only one puts a nonce into them. Raises UnsyncedError where the file is written and
        may yet be lost.
        """

    def checksum_of(self, path: str, data: bytes) -> str:
        """The checksum by which listings know a file that was just written with these bytes; empty
        without one.
        """

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Write over the file only while it is still `version` (None: while it is absent); False
        otherwise.

        A file that holds equal bytes by now counts as written, as for `put_if_absent`. Raises
        UnsyncedError where the file is replaced and that may yet be lost.
        """

    def delete(self, *paths: str) -> None:
        """Remove files; no error where there is none."""

    def delete_if(self, path: str, version: str) -> bool:
        """Remove the file only while it is still `version`; False otherwise."""


def is_local(path: str) -> bool:
    """Whether the path is that of a file on this machine, not a URL."""
    return SCHEME.match(path.strip()) is None


def bucket_and_name(url: str) -> tuple[str, str]:
    """The bucket and the object's name in a URL such as gs://bucket/name."""
    bucket, _, name = url.partition("://")[2].partition("/")
    return bucket, name


def absolute(path: StrPath) -> str:
    """The path as workers see it: absolute where it is local, as given (without a final slash)
    elsewhere.
    """
    path = as_text(path)
    return os.path.abspath(os.path.expanduser(path)) if is_local(path) else path.rstrip("/")


def join(root: str, *parts: str) -> str:
    """A path below a root, with `/` between the parts."""
    return "/".join([root.rstrip("/"), *parts])
