"""Files that are one row each: Markdown, and all files with `--format file`."""

from collections.abc import Iterator
from typing import BinaryIO

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.files import InputFile, decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats.encoding import BOM, refuse_utf16
from sentence_beam.transforms.corpus.formats.text_lines import MOST_BYTES, whole
from sentence_beam.transforms.storage.base import BLOCK


def check_size(file: InputFile, size: int) -> None:
    """Raise OptionError for a file with too many bytes for a row."""
    if size > MOST_BYTES:
        raise OptionError(
            f"{file.path} has more than {MOST_BYTES / 1e6:,.0f} MB, too much for one row; cut it"
            " into files, or say --format text, a row a line"
        )


def read_file(file: InputFile) -> bytes:
    """The uncompressed bytes of a file, without a byte order mark.

    Raises SentenceBeamError if a compressed file is cut short or corrupt, and for text with a byte
    order mark of UTF-16; OptionError if the file is too large.
    """
    with open_unchanged(file) as raw:
        data = b"".join(whole(file, _read_parts(file, decompressed(file, raw))))
    refuse_utf16(file, data)
    return data.removeprefix(BOM)


def _read_parts(file: InputFile, reader: BinaryIO) -> Iterator[bytes]:
    size = 0
    while part := reader.read(BLOCK):
        size += len(part)
        check_size(file, size)
        yield part
