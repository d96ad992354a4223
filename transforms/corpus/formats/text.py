"""Text files: a row a line."""

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.line_formats import LineFormat
from sentence_beam.transforms.corpus.formats.plain import PlainFormat, read_plain
from sentence_beam.transforms.corpus.formats.text_lines import CutLine
from sentence_beam.transforms.corpus.parsed_rows import ParsedRow, reject_cut
from sentence_beam.transforms.corpus.row_blocks import BLANK_LINE, Columns


class Text(LineFormat, PlainFormat):
    """Files of plain text, a row a line."""

    name = "text"
    endings = (".txt", ".text")
    blank_reason = BLANK_LINE

    def row(self, file: InputFile, columns: Columns, offset: int, line: bytes) -> ParsedRow:
        row_id = f"{file.relative}@{offset}"
        if isinstance(line, CutLine):
            return reject_cut(line, row_id)
        return read_plain(columns, row_id, line)


FORMATS = (Text(),)
