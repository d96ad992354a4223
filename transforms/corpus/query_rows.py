"""Queries in files: the files, and the texts and names of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.collection_rows import list_files, naming_option, read_files
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.found_columns import choose_text_column
from sentence_beam.transforms.corpus.row_blocks import BLANK_LINE, EMPTY_TEXT, NULL_TEXT, Columns
from sentence_beam.transforms.corpus.rows import Rejected
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax

NO_TEXT = (EMPTY_TEXT, NULL_TEXT)  # reasons against rows of tables without a query


@dataclass(frozen=True)
class QueryFiles:
    """The files that `--queries` names, and how to read them; None means "not given"."""

    patterns: tuple[str, ...]
    format: str | None = None
    syntax: Syntax = AS_FOUND
    text_column: str | None = None
    id_column: str | None = None

    def find_columns_in(self, files: Sequence[InputFile]) -> Columns:
        """Return the columns to read of files; the text is found in them if it is not named."""
        return Columns(choose_text_column(files, self.text_column), self.id_column)

    def list(self) -> list[InputFile]:
        """The files, sorted by relative path.

        Raises the errors of `embed`, which name `--queries`.
        """
        with naming_option(cite("queries")):
            return list_files(self.patterns, self.format or "auto", self.syntax)


@dataclass(frozen=True)
class TextQueries:
    """Names and texts of queries, in the order of their files; the number of rows without text."""

    names: Sequence[str]
    texts: Sequence[str]
    without_text: int = 0


def read_queries(files: QueryFiles) -> TextQueries:
    """All queries of some files; a query's name is its id, or its text if no column has ids.

    Blank lines and rows without a text are left out. Raises OptionError for files without a query
    and for a row that cannot be read, and SentenceBeamError for a file that cannot be read.
    """
    names: list[str] = []
    texts: list[str] = []
    without_text = 0
    listed = files.list()
    for unit in read_files(listed, files.find_columns_in(listed)):
        _refuse_unreadable(unit.rejects)
        without_text += sum(reject.reason in NO_TEXT for reject in unit.rejects)
        names += unit.ids if files.id_column else unit.texts
        texts += unit.texts
    if not texts:
        raise OptionError(
            f"{cite('queries')} {files.patterns[0]} holds no query; a row needs a text"
        )
    return TextQueries(names, texts, without_text)


def _refuse_unreadable(rejects: Sequence[Rejected]) -> None:
    """Raise OptionError for the first row that is rejected for more than a missing text."""
    for reject in rejects:
        if reject.reason not in (BLANK_LINE, *NO_TEXT):
            raise OptionError(
                f"{cite('queries')} {reject.file}: {reject.reason} ({reject.excerpt!r}); mend this"
                " row"
            )
