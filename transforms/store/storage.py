"""The one module that touches storage: list, read, write once, replace or delete if unchanged, delete.

Local folders get atomic writes and real conditions (a hard link that must not exist, a comparison under a file lock),
gs:// has them itself (see `gcs`). Every other scheme goes through Beam's filesystems (see `other`). These modules are
imported where a path wants them: Beam alone takes two seconds, which is long for a command that runs no pipeline.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from transforms.errors import MissingExtraError, SentenceBeamError
from transforms.imports import uncollected

BLOCK = 1 << 20
SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")
LITERAL = re.compile(r"[^\[*?]*")
GLOB = re.compile(r"\*\*?|\?|\[(?=(!?\]?[^\]]*))\1\]|.", re.DOTALL)
WILDCARDS = {"**": ".*", "*": r"[^/\\]*", "?": "."}
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


@dataclass(frozen=True)
class Entry:
    """One stored file: full path, bytes, checksum (content where the store knows it) and version (changes on write).

    `modified` is when it was written, in seconds since 1970 by the storage's clock.
    """

    path: str
    size: int
    checksum: str
    version: str
    modified: float = 0.0


class Storage(Protocol):
    """What the rest of the project may do with files; paths are full paths or URLs.

    `pins` says that `open` reads the very version it is given, whatever is written over it meanwhile; elsewhere the
    versions before and after reading have to be compared.
    """

    @property
    def pins(self) -> bool: ...

    def match(self, pattern: str) -> list[Entry]:
        """Files that a glob names, sorted by path; `*` stays inside a folder, `**` does not.

        Raises SentenceBeamError for a link to nothing that a glob names: it would be left out unnoticed.
        """

    def below(self, folder: str) -> list[Entry]:
        """Every file below a folder, sorted by path, in one listing: checksums and versions only where it has them."""

    def stat(self, path: str) -> Entry | None:
        """The file's entry, or None where there is no file."""

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        """A seekable binary reader of the bytes as stored (nothing decompressed); `entry` is the file's, if known.

        Raises FileNotFoundError; InputChangedError where storage pins and that version is gone.
        """

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """The bytes and their version for `replace_if`, or None where there is no file."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file whole, never over another; False where one stands already."""

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Write over the file only while it is still `version` (None: while it is absent); False otherwise."""

    def delete(self, *paths: str) -> None:
        """Remove files; no error where there is none."""

    def delete_if(self, path: str, version: str) -> bool:
        """Remove the file only while it is still `version`; False otherwise."""


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
        """Version: size, modification and change time, inode. Only the bytes' own hash proves more."""
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


def is_local(path: str) -> bool:
    """Whether the path is a file of this machine."""
    return SCHEME.match(path.strip()) is None


def threads_may_read(path: str) -> bool:
    """Whether Arrow may read a file on threads of its own: what is far away is read by Python, which may be ending."""
    return is_local(path)


def storage_of(path: str) -> Storage:
    """The storage that holds a path. Raises MissingExtraError where no filesystem is installed for its scheme."""
    if is_local(path):
        return LocalStorage()
    try:
        with uncollected():
            return _far_away(path)
    except (ImportError, ValueError) as error:
        raise _no_filesystem(path) from error


def _far_away(path: str) -> Storage:
    if path.startswith("gs://"):
        from transforms.store.gcs import GcsStorage  # only where the extra is installed

        return GcsStorage()
    if path.startswith("s3://"):
        from transforms.store.s3 import S3Storage

        return S3Storage()
    from transforms.store.other import storage_by_beam

    return storage_by_beam(path)


def _no_filesystem(path: str) -> MissingExtraError:
    scheme = path.split("://")[0]
    extra = {"gs": "sentence-beam[gcp]", "s3": "sentence-beam[aws]", "azfs": "apache-beam[azure]"}.get(scheme)
    mend = f"pip install '{extra}'" if extra else "give a local path, gs:// or s3://"
    return MissingExtraError(f"{path}: no filesystem for {scheme}:// here; {mend}")


def literal_part(pattern: str) -> str:
    """What stands before a pattern's first wildcard."""
    return LITERAL.match(pattern)[0]  # type: ignore[index]


def names_of(pattern: str) -> re.Pattern[str]:
    """What a glob names, as a regular expression for whole paths; what a wildcard stands for is as in Beam.

    >>> bool(names_of("a/*.txt").fullmatch("a/b/c.txt")), bool(names_of("a/**.txt").fullmatch("a/b/c.txt"))
    (False, True)
    """
    return re.compile("".join(_translated(found[0], found[1]) for found in GLOB.finditer(pattern)), re.DOTALL)


def _translated(piece: str, among: str | None) -> str:
    """A wildcard, the characters `among` which one is to be, or a character that stands for itself."""
    if among is None:
        return WILDCARDS.get(piece) or re.escape(piece)
    among = re.sub(r"([\\\[&~|])", r"\\\1", among)
    if among.startswith("!"):
        return f"[^{among[1:]}]"
    return f"[\\{among}]" if among.startswith("^") else f"[{among}]"


def absolute(path: str) -> str:
    """The path as workers see it: absolute where it is local, as given (without a final slash) elsewhere."""
    return os.path.abspath(os.path.expanduser(path)) if is_local(path) else path.rstrip("/")


def join(root: str, *parts: str) -> str:
    """A path below a root, with `/` between the parts."""
    return "/".join([root.rstrip("/"), *parts])


def read_bytes(path: str) -> bytes:
    """A whole file. Raises FileNotFoundError."""
    found = storage_of(path).read_versioned(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found[0]


def overwrite(path: str, data: bytes) -> None:
    """Write a file whole, over whatever stands there. Raises OSError where another writer was faster."""
    place = storage_of(path)
    standing = place.read_versioned(path)
    if not place.replace_if(path, data, standing[1] if standing else None):
        raise OSError(f"{path} was written by another run at the same time")


@contextlib.contextmanager
def on_local_disk(path: str) -> Iterator[str]:
    """A local file with the bytes of a stored one: the file itself, or a copy that lasts as long as the block."""
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


def _sync_folder(path: str) -> None:
    """Make a new name survive a power cut."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
