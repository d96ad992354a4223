"""Files whose first bytes show that they do not hold what their names say."""

import contextlib
import re
from typing import BinaryIO

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.corpus.files import InputFile, open_decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats.registry import choose_reader

POINTER = b"version https://git-lfs.github.com/spec/"
POINTER_BYTES = 1 << 10  # of a pointer at most, by the specification of Git LFS
HEAD = 1 << 9
TAR = re.compile(rb".{257}ustar[\x00 ]", re.DOTALL)
# beginnings of compressed files, the tool's name and the suffix by which such a file is read
PACKED = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip", ".gz"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd", ".zst"),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"), "bzip2", ".bz2"),
    (re.compile(rb"\xfd7zXZ\x00"), "xz", ".xz"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), "zip", ""),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "7z", ""),
    (TAR, "tar", ""),
)


def check_first_bytes(file: InputFile) -> None:
    """Raise SentenceBeamError for a pointer of Git LFS, and for compression that the name hides.

    Tables, as Parquet, are compressed inside. Large ones on object storage are not opened, since
    each costs a request, and reading them says that they are none.
    """
    is_packed = choose_reader(file).is_packed
    is_far = file.size >= POINTER_BYTES and not storage.is_local(file.path)
    if not file.size or (is_packed and is_far):
        return
    with open_unchanged(file) as raw:
        head = raw.read(HEAD)
        if file.size < POINTER_BYTES and head.startswith(POINTER):
            raise SentenceBeamError(
                f"{file.path} is a pointer of Git LFS, not the file itself; fetch it by `git lfs"
                f" pull`, or leave it out of {cite('input')}"
            )
        raw.seek(0)
        if is_packed:
            _check_table(file, head)
        else:
            _check_packed(file, head, raw)


def _check_table(file: InputFile, head: bytes) -> None:
    """Raise SentenceBeamError if a table is compressed as a whole."""
    tool, _ = _find_compression(head)
    if tool:
        raise SentenceBeamError(
            f"{file.path} is a {tool} file, and {file.format} is read only as its writer compresses"
            " it inside; unpack it"
        )


def _check_packed(file: InputFile, head: bytes, raw: BinaryIO) -> None:
    """Raise SentenceBeamError if the bytes are compressed in another way than the name says."""
    tool, suffix = _find_compression(head)
    if not file.compression:
        if tool:
            raise SentenceBeamError(f"{file.path} is a {tool} file; {_mend(file, suffix)}")
        return
    if tool and suffix != file.compression:
        raise SentenceBeamError(
            f"{file.path} is a {tool} file, not {file.compression} as its name says; replace it or"
            f" leave it out of {cite('input')}"
        )
    inside = b""
    with contextlib.suppress(Exception):  # reading the rows says what is wrong
        inside = open_decompressed(file, raw).read(HEAD)
    tool, _ = _find_compression(inside)
    if tool:
        raise SentenceBeamError(
            f"{file.path} holds a {tool} file inside the {file.compression}; unpack it once and"
            " name what is inside by its own ending"
        )


def _mend(file: InputFile, suffix: str) -> str:
    if not suffix:
        return "unpack it"
    return f"rename it to {file.path.rpartition('/')[2]}{suffix}, or unpack it"


def _find_compression(head: bytes) -> tuple[str, str]:
    """Return the tool and the suffix of the compression that a file begins with, or two ""."""
    for beginning, tool, suffix in PACKED:
        if beginning.match(head):
            return tool, suffix
    return "", ""
