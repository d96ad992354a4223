"""The input side: files cut into spans, spans read into rows, documents cut into pieces.

The functions that cut documents are loaded when first used, because they take as long to import as
everything else.
"""

from typing import TYPE_CHECKING

from sentence_beam.transforms.corpus.collection_rows import (
    list_files,
    plan_file,
    read_files,
    read_header,
    read_values,
)
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.find import match_inputs
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.row_counting import limit_spans
from sentence_beam.transforms.corpus.rows import (
    Rejected,
    UnitRows,
    blank_lines,
    forgotten_rows,
    read_span,
)
from sentence_beam.transforms.corpus.spans import Span

if TYPE_CHECKING:
    from sentence_beam.transforms.corpus.chunks.cut import Cutter, Pieces, chunk
else:  # with this function in sight, a type checker would accept any name

    def __getattr__(name):
        if name not in ("Cutter", "Pieces", "chunk"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module("sentence_beam.transforms.corpus.chunks.cut"), name)


__all__ = [
    "Columns",
    "Cutter",
    "InputFile",
    "Pieces",
    "Rejected",
    "Span",
    "UnitRows",
    "blank_lines",
    "chunk",
    "forgotten_rows",
    "limit_spans",
    "list_files",
    "match_inputs",
    "plan_file",
    "read_files",
    "read_header",
    "read_span",
    "read_values",
]
