"""All rows of the files that `--input` names, for what reads a collection once and keeps nothing of
it.
"""

from collections.abc import Iterable, Iterator

from transforms.corpus.columns import kept_types
from transforms.corpus.files import PLAIN, InputFile, check_distinct
from transforms.corpus.find import match_inputs
from transforms.corpus.row_blocks import Columns
from transforms.corpus.rows import UnitRows, read_span
from transforms.corpus.spans import UNIT_TOKENS, plan_file


def list_files(patterns: Iterable[str], file_format: str, delimiter: str | None) -> list[InputFile]:
    """The files that the patterns name, each once. Raises the errors that `embed` raises for
    them.
    """
    files = [
        file
        for pattern in patterns
        for file in match_inputs(pattern, file_format, delimiter=delimiter)
    ]
    check_distinct(files)
    return sorted({file.path: file for file in files}.values(), key=lambda file: file.relative)


def read_files(files: Iterable[InputFile], columns: Columns) -> Iterator[UnitRows]:
    """The rows of the files, a unit at a time. Raises the errors that `embed` raises for them."""
    for file in files:
        if file.format not in PLAIN:
            kept_types(file, columns.text, columns.id, columns.keep)
        for span in plan_file(file, columns.text, UNIT_TOKENS):
            yield from read_span(span, columns, UNIT_TOKENS)
