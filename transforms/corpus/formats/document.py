"""Documents: files that are one row each."""

from collections.abc import Iterator

import numpy as np

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.plain import PlainFormat, read_plain
from sentence_beam.transforms.corpus.parsed_rows import gather_rows
from sentence_beam.transforms.corpus.row_blocks import Block, Columns
from sentence_beam.transforms.corpus.spans import PACKS, Span, estimated_tokens
from sentence_beam.transforms.corpus.whole_files import check_size, read_file


class Document(PlainFormat):
    """Markdown, and any file with `--format file`."""

    name = "file"
    endings = (".md", ".markdown")

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        """The file as one span. Raises OptionError if it is too large for a row."""
        check_size(file, file.size)
        size = PACKS * file.size if file.compression else file.size
        return [Span(file, 0, 0, 1, (), 1, estimated_tokens(size, 1))]

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        file = span.file
        data = read_file(file)
        row = read_plain(columns, file.relative, data)
        yield gather_rows(columns, [0], [row]), np.array([len(data)], np.int64)

    def row_counts(self, file: InputFile) -> Iterator[int]:
        return iter([1])


FORMATS = (Document(),)
