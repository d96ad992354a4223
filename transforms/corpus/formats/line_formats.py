"""Formats with one row a line, of which any range of bytes can be read."""

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.format import Format
from sentence_beam.transforms.corpus.formats.text_lines import find_line_starts, read_lines
from sentence_beam.transforms.corpus.parsed_rows import ParsedRow, gather_rows, measure_texts
from sentence_beam.transforms.corpus.row_blocks import Block, Columns
from sentence_beam.transforms.corpus.spans import TEXT_BYTES_PER_TOKEN, Span


class LineFormat(Format):
    """A format with one row a line; a file is cut into byte ranges unless it is compressed.

    Positions and spans are in uncompressed bytes. Units are measured by the text alone if the
    file's cut was chosen, else by whole lines.
    """

    is_by_line = True
    counts_in_head = True

    @abstractmethod
    def row(self, file: InputFile, columns: Columns, offset: int, line: bytes) -> ParsedRow:
        """Read the row of the line that starts at a byte offset."""

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        if file.compression:
            return super().spans(file, text, unit_tokens)
        return list(_cut_ranges(file, unit_tokens))

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        file = span.file
        for block in read_lines(file, span.start, span.stop):
            rows = [self.row(file, columns, offset, line) for offset, line in block]
            if file.cut:
                sizes = measure_texts(rows)
            else:
                sizes = np.array([len(line) for _, line in block], np.int64)
            yield gather_rows(columns, [offset for offset, _ in block], rows), sizes

    def count_rows(self, span: Span) -> int:
        return sum(len(block) for block in read_lines(span.file, span.start, span.stop))

    def count_block_rows(self, file: InputFile) -> Iterator[int]:
        return map(len, read_lines(file, 0, None))

    def find_row_starts(self, span: Span) -> Iterator[int]:
        return find_line_starts(span.file, span.start, span.stop)

    def count_in_head(self, file: InputFile, head: bytes, goes_on: bool) -> int:
        is_last_open = not goes_on and head != b"" and not head.endswith(b"\n")
        return head.count(b"\n") + is_last_open


def _cut_ranges(file: InputFile, unit_tokens: int) -> Iterator[Span]:
    step = file.cut or TEXT_BYTES_PER_TOKEN * unit_tokens
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        yield Span(file, start, start, stop, tokens=(stop - start) * unit_tokens // step)
