"""The input side: files, cut into spans, which are read into rows."""

from transforms.corpus.chunks import Chunks, Cutter, Pieces, chunk
from transforms.corpus.counting import limit_spans
from transforms.corpus.files import InputFile, match_inputs
from transforms.corpus.row_blocks import Columns
from transforms.corpus.rows import Rejected, UnitRows, read_span
from transforms.corpus.spans import Span, plan_file

__all__ = [
    "Chunks",
    "Columns",
    "Cutter",
    "InputFile",
    "Pieces",
    "Rejected",
    "Span",
    "UnitRows",
    "chunk",
    "limit_spans",
    "match_inputs",
    "plan_file",
    "read_span",
]
