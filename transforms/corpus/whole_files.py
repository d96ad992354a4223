"""Files that are a row each: Markdown, and whatever `--format file` is said of."""

from collections.abc import Iterator
from typing import BinaryIO

from transforms.base.errors import OptionError
from transforms.corpus.encoding import BOM, refuse_utf16
from transforms.corpus.files import InputFile, decompressed, open_unchanged
from transforms.corpus.lines import MOST_BYTES, whole
from transforms.storage.base import BLOCK


def check_size(file: InputFile, size: int) -> None:
    """Raise OptionError for a file of so many bytes that it can be no row."""
    if size > MOST_BYTES:
        raise OptionError(
            f"{file.path} has more than {MOST_BYTES / 1e6:,.0f} MB, too much for one row; cut it"
            " into files, or say --format text, a row a line"
        )


def read_file(file: InputFile) -> bytes:
    """The uncompressed bytes of a file, without a byte order mark.

    Raises SentenceBeamError where a compressed file is cut short or corrupt, and for text with a
    mark of UTF-16; OptionError where there is too much of it.
    """
    with open_unchanged(file) as raw:
        data = b"".join(whole(file, _parts(file, decompressed(file, raw))))
    refuse_utf16(file, data)
    return data.removeprefix(BOM)


def _parts(file: InputFile, reader: BinaryIO) -> Iterator[bytes]:
    size = 0
    while part := reader.read(BLOCK):
        size += len(part)
        check_size(file, size)
        yield part
