"""The input side: files, cut into spans, which are read into rows; documents, cut into pieces.

What cuts documents is loaded when it is first used: it takes as long to import as all the rest.
"""

from typing import TYPE_CHECKING

from transforms.corpus.counting import limit_spans
from transforms.corpus.files import InputFile
from transforms.corpus.find import match_inputs
from transforms.corpus.reading import list_files, plan_file, read_files, read_header, read_values
from transforms.corpus.row_blocks import Columns
from transforms.corpus.rows import Rejected, UnitRows, blank_lines, read_span
from transforms.corpus.spans import Span

if TYPE_CHECKING:
    from transforms.corpus.chunks.cut import Cutter, Pieces, chunk
else:  # a checker that saw this function would take every name for one of the package's

    def __getattr__(name):
        if name not in ("Cutter", "Pieces", "chunk"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module("transforms.corpus.chunks.cut"), name)


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
    "limit_spans",
    "list_files",
    "match_inputs",
    "plan_file",
    "read_files",
    "read_header",
    "read_span",
    "read_values",
]
