"""All rows of input files, for commands that read a collection once.

`embed` reads the same spans with the same readers, but on many workers: see `read_span`.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.corpus.files import InputFile, check_distinct
from sentence_beam.transforms.corpus.find import match_inputs
from sentence_beam.transforms.corpus.first_bytes import check_first_bytes
from sentence_beam.transforms.corpus.formats.format import RawRow
from sentence_beam.transforms.corpus.formats.registry import choose_reader, open_columns
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.rows import UnitRows, read_span
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS, Span
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax

DESCRIBED = 8  # files that are opened for a summary


def list_files(
    patterns: Iterable[str], file_format: str, syntax: Syntax = AS_FOUND
) -> list[InputFile]:
    """The files that the patterns name, each once. Raises the errors that `embed` raises."""
    files = [file for pattern in patterns for file in match_inputs(pattern, file_format, syntax)]
    check_distinct(files)
    return sorted({file.path: file for file in files}.values(), key=lambda file: file.relative)


def set_cut(file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> InputFile:
    """The file with the size of its spans, which is chosen unless a store has it already.

    Raises SentenceBeamError for a file that cannot be read.
    """
    if file.cut is not None:
        return file
    return replace(file, cut=choose_reader(file).choose_cut(file, text, unit_tokens))


def plan_file(file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
    """Spans of about `unit_tokens`, in order.

    `text` names the column with the text, or the columns of its template. Raises SentenceBeamError
    for a file that cannot be read.
    """
    return choose_reader(file).spans(set_cut(file, text, unit_tokens), text, unit_tokens)


def plan_reading(file: InputFile, columns: Columns) -> list[Span]:
    """The spans of a file, whose columns are checked as by `embed`.

    Plain text has no columns.
    """
    check_first_bytes(file)
    reader = choose_reader(file)
    if reader.has_columns:
        open_columns(file).check(columns)
    return reader.spans(file, columns.text, UNIT_TOKENS)


def read_files(files: Iterable[InputFile], columns: Columns) -> Iterator[UnitRows]:
    """Yield the rows of the files with text, id and kept columns, a unit at a time.

    Rejected rows are apart. Raises the errors of `embed` for files.
    """
    for file in files:
        for span in plan_reading(file, columns):
            yield from read_span(span, columns, UNIT_TOKENS)


def read_header(file: InputFile) -> list[str]:
    """The names of a file's columns; for JSON, the keys of its first row.

    Raises OptionError for a file without columns.
    """
    check_first_bytes(file)
    names = choose_reader(file).header(file)
    if not names:
        raise OptionError(f"{file.path} is empty; leave it out of {cite('input')}")
    return names


def read_values(file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
    """Yield the rows of a file in order, with the values of some columns, which may be of any type.

    Raises SentenceBeamError for a file that cannot
    be read.
    """
    return choose_reader(file).values(file, names)


def describe_files(files: Iterable[InputFile]) -> dict[str, tuple[str, str]]:
    """Return the syntaxes that the first files of formats like CSV were found to have.

    Each one has its format and the name of its first file. Files that cannot be read are left out.
    """
    descriptions: dict[str, tuple[str, str]] = {}
    with_syntax = (file for file in files if choose_reader(file).has_header)
    for file in islice(with_syntax, DESCRIBED):
        with contextlib.suppress(SentenceBeamError):
            descriptions.setdefault(
                choose_reader(file).describe(file), (file.format, file.relative)
            )
    return descriptions


@contextlib.contextmanager
def naming_option(option: str) -> Iterator[None]:
    """Replace --input by another option in the errors of reading files."""
    try:
        yield
    except OptionError as error:
        raise OptionError(error.message.replace(cite("input"), option)) from error
