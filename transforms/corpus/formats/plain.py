"""Plain text: it has no columns; its rows, and checks of the options that name columns."""

from collections.abc import Iterator, Sequence

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.column_checks import FileColumns
from sentence_beam.transforms.corpus.column_types import STR
from sentence_beam.transforms.corpus.column_values import decode
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.format import Format, RawRow
from sentence_beam.transforms.corpus.parsed_rows import ParsedRow, fill_prefix, read_kept
from sentence_beam.transforms.corpus.row_blocks import Columns

TEXT = "text"  # the column that plain text has


class PlainFormat(Format):
    """A format that has only texts."""

    has_columns = False

    def columns(self, file: InputFile) -> "PlainColumns":
        return PlainColumns(file)

    def header(self, file: InputFile) -> list[str]:
        raise _make_columns_error(file)

    def values(self, file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
        raise _make_columns_error(file)


def _make_columns_error(file: InputFile) -> OptionError:
    return OptionError(
        f"{file.path} is plain text and has no columns; give TSV, CSV, JSON lines or Parquet"
    )


class PlainColumns(FileColumns):
    """The one column of plain text."""

    def names(self) -> Sequence[str]:
        return [TEXT]

    def check(self, columns: Columns) -> None:
        """Raise OptionError for every column but the text."""
        others = set(columns.keep) - {columns.text_column or TEXT}
        if others or columns.id:
            option = cite("id_column") if columns.id else cite("keep_columns")
            name = columns.id or ",".join(columns.keep)
            raise OptionError(
                f"{self.file.path} is plain text and has no column {name} ({option}); make it a "
                f"table, as CSV, or give it a {cite('store')} of its own without {option}"
            )

    def find_types(self, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, STR.word) for name in keep)

    def find_existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        return tuple(name for name in names if name == TEXT)


def read_plain(columns: Columns, row_id: str, data: bytes) -> ParsedRow:
    """Read the row of a text; it is rejected for bytes that are not UTF-8."""
    plain, reason = decode(data)
    values = {**columns.path_values, columns.text: plain}
    text: str | None = columns.of_text.fill(values.get) if columns.of_text is not None else plain
    kept, unread = read_kept(columns, {name: values.get(name) for name in columns.keep})
    return ParsedRow(text, row_id, reason or unread, kept, fill_prefix(columns, values.get))
