"""Input files: relative paths, compression, and checks that a file is still the planned one."""

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import zstandard

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.compact import pickle_by_values
from sentence_beam.transforms.base.errors import (
    InputChangedError,
    OptionError,
    SentenceBeamError,
    cite,
)
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.storage.base import BLOCK
from sentence_beam.transforms.storage.globs import get_literal_part

STDIN = "stdin"  # stem of the name of the file that holds standard input
LARGEST_WINDOW = 1 << 31  # bytes: what `zstd --long=31` writes
PACKED_AT_ONCE = 1 << 10  # bytes of zstd, at most 32 MB of text
BROKEN = "link to nothing"  # the version of a broken link


@pickle_by_values
@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file as the run listed it.

    `path` is the full path, `relative` the name from which ids and units are made. `checksum`
    is that of the content, `version` that of this very file (see storage.Entry). `compression`
    is a suffix or "". `syntax` is what options say of the syntax of CSV and JSON. `before` are
    the beginnings of names of the last snapshot's units that may hold the file's texts: of the
    file of this name, then of one with the same bytes; "" without one. `types` are the codes
    of the types of kept columns that the plan found in the files, by name. `cut` is the size
    of the file's spans, which the store keeps (see `Format.choose_cut`): 0 if its format has no
    choice, None if nothing is chosen yet.
    """

    path: str
    relative: str
    format: str
    compression: str
    size: int
    checksum: str
    version: str
    syntax: Syntax = AS_FOUND
    before: tuple[str, str] = ("", "")
    types: tuple[tuple[str, str], ...] = ()
    cut: int | None = field(default=None, compare=False)

    @property
    def entry(self) -> storage.Entry:
        """The file's entry as its storage listed it."""
        return storage.Entry(self.path, self.size, self.checksum, self.version)

    @property
    def key(self) -> str:
        """The file's part of its units' names."""
        return make_key(self.relative)


def make_key(relative: str) -> str:
    """The first 16 hex digits of sha256(relative path): a file's part of its units' names."""
    return hashlib.sha256(relative.encode()).hexdigest()[:16]


def find_fixed_part(pattern: str) -> str:
    """The deepest folder before the first wildcard, with its final slash, or "".

    >>> find_fixed_part("/data/en/*.parquet"), find_fixed_part("/data/en/a.txt"), find_fixed_part("gs://b/x-?/y")
    ('/data/en/', '/data/en/', 'gs://b/')
    """
    literal = get_literal_part(pattern)
    return literal[: literal.rfind("/") + 1]


def split_compression(name: str) -> tuple[str, str]:
    """The name of a file without the suffix of a compression, and the suffix in lower case or "".

    >>> split_compression("en/a.txt.GZ"), split_compression("a.parquet")
    (('en/a.txt', '.gz'), ('a.parquet', ''))
    """
    suffix = name[name.rfind(".") :]
    if suffix.lower() in _READERS:
        return name.removesuffix(suffix), suffix.lower()
    return name, ""


def find_ending(path: str) -> str:
    """The ending of a file's name, including that of a compression."""
    stem, _ = split_compression(path)
    return "." + stem.rpartition(".")[2] + path[len(stem) :]


def is_utf8(text: str | None) -> bool:
    """Whether a text can be encoded.

    JSON and file names can have lone surrogates, which cannot.
    """
    if text is None or text.isascii():  # known without looking at the characters
        return True
    try:
        text.encode("utf8")
    except UnicodeEncodeError:
        return False
    return True


def is_unnamed(path: str) -> bool:
    """Whether a file is rows in memory or standard input, with one name for any content."""
    return storage.is_rows(path) or path.rpartition("/")[2].partition(".")[0] == STDIN


def check_distinct(files: list[InputFile]) -> None:
    """Raise OptionError if two files share a relative path, since units would share names."""
    seen: dict[str, str] = {}
    for file in files:
        other = seen.setdefault(file.relative, file.path)
        if other != file.path:
            raise OptionError(
                f"{cite('input')}: {other} and {file.path} both give the relative path"
                f" {file.relative}; use one {cite('input')} whose fixed part is above both (a"
                " pattern that the shell leaves alone, in quotes)"
            )


def make_link_error(path: str) -> SentenceBeamError:
    """The error for a broken link."""
    return SentenceBeamError(
        f"{path} is a link to a file that is not there; mend the link or remove it"
    )


def check_unchanged(file: InputFile) -> None:
    """Raise InputChangedError if the file may not be the planned one any more."""
    if storage.storage_of(file.path).pins:
        return  # this storage only reads the planned version
    entry = storage.storage_of(file.path).stat(file.path)
    if entry is None:
        raise InputChangedError(
            f"{file.path} was removed while the run read it; run again on a settled input"
        )
    if entry.version != file.version:
        raise InputChangedError(
            f"{file.path} changed while the run read it; run again on a settled input"
        )


@contextlib.contextmanager
def open_unchanged(file: InputFile) -> Iterator[BinaryIO]:
    """The file's bytes as stored.

    Raises InputChangedError if the file is replaced before or while it is read.
    """
    check_unchanged(file)
    with storage.storage_of(file.path).open(file.path, file.entry) as f:
        yield f
    check_unchanged(file)


class _ZstdReader(io.RawIOBase):
    """Reader of consecutive zstd frames; a truncated last one raises EOFError, as with gzip.

    It unpacks a few packed bytes at a time, since they may hold 32,768 times as many.
    """

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self._frame = _open_zstd_frame()
        self._started = False
        self._block = b""
        self._at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """About `size` uncompressed bytes, or a block if it is negative; fewer at the end."""
        parts = []
        wanted = BLOCK if size < 0 else size
        while wanted > 0 and (packed := self._take_packed()):
            parts.append(self._feed(packed))
            wanted -= len(parts[-1])
        data = b"".join(parts)
        if wanted > 0 and not data and self._started and not self._frame.eof:
            raise EOFError("compressed file ended before its end-of-stream marker was reached")
        return data

    def _take_packed(self) -> bytes:
        """The next few packed bytes; none at the end."""
        if self._at == len(self._block):
            self._block = self._raw.read(BLOCK)
            self._at = 0
        start = self._at
        self._at = min(self._at + PACKED_AT_ONCE, len(self._block))
        return self._block[start : self._at]

    def _feed(self, packed: bytes) -> bytes:
        if self._frame.eof:
            self._frame = _open_zstd_frame()
        self._started = True
        data = self._frame.decompress(packed)
        if self._frame.eof:
            self._at -= len(self._frame.unused_data)
        return data


def _open_zstd_frame() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()


_READERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".zst": _ZstdReader,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


def open_decompressed(file: InputFile, raw: BinaryIO) -> BinaryIO:
    """A sequential reader of a file's uncompressed bytes."""
    return cast(BinaryIO, _READERS[file.compression](raw)) if file.compression else raw
