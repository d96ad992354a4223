"""Documents: files that are one row each."""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.files import InputFile, open_decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats.encoding import BOM, refuse_utf16
from sentence_beam.transforms.corpus.formats.plain import PlainFormat, read_plain
from sentence_beam.transforms.corpus.formats.text_lines import MOST_BYTES, report_faults
from sentence_beam.transforms.corpus.parsed_rows import gather_rows
from sentence_beam.transforms.corpus.row_blocks import Block, Columns
from sentence_beam.transforms.corpus.spans import PACKS, Span, estimate_tokens
from sentence_beam.transforms.storage.base import BLOCK


class Document(PlainFormat):
    """Markdown, and any file with `--format file`."""

    name = "file"
    endings = (".md", ".markdown")

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        """The file as one span. Raises OptionError if it is too large for a row."""
        _check_size(file, file.size)
        size = PACKS * file.size if file.compression else file.size
        return [Span(file, 0, 0, 1, (), 1, estimate_tokens(size, 1))]

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        data = _read_file(span.file)
        row = read_plain(columns, span.file.relative, data)
        yield gather_rows(columns, [0], [row]), np.array([len(data)], np.int64)

    def count_block_rows(self, file: InputFile) -> Iterator[int]:
        return iter([1])


def _check_size(file: InputFile, size: int) -> None:
    """Raise OptionError for a file with too many bytes for a row."""
    if size > MOST_BYTES:
        raise OptionError(
            f"{file.path} has more than {MOST_BYTES / 1e6:,.0f} MB, too much for one row; cut it"
            f" into files, or say {cite('format')} text, a row a line"
        )


def _read_file(file: InputFile) -> bytes:
    """The uncompressed bytes of a file, without a byte order mark.

    Raises SentenceBeamError if a compressed file is cut short or corrupt, and for text with a byte
    order mark of UTF-16; OptionError if the file is too large.
    """
    with open_unchanged(file) as raw:
        data = b"".join(report_faults(file, _read_parts(file, open_decompressed(file, raw))))
    refuse_utf16(file, data)
    return data.removeprefix(BOM)


def _read_parts(file: InputFile, reader: BinaryIO) -> Iterator[bytes]:
    size = 0
    while part := reader.read(BLOCK):
        size += len(part)
        _check_size(file, size)
        yield part


FORMATS = (Document(),)
