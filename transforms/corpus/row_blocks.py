"""Blocks of rows before they become units, with the reasons against rows."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.corpus.arrow_types import parse_type
from sentence_beam.transforms.corpus.column_types import ColumnType
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.path_values import choose_values
from sentence_beam.transforms.corpus.text_template import Template, parse

NULL_TEXT = "null text"
EMPTY_TEXT = "empty text"
BLANK_LINE = "blank line"  # of a text file
NULL_ID = "null id"
NOT_JSON = "not a JSON object"
TEXT_NOT_STRING = "text is not a string"
ID_NOT_STRING = "id is neither string nor integer"
OTHER_WIDTH = "not as many values as the header has names"


@dataclass(frozen=True)
class Columns:
    """The columns to read: the text, the id (None: made from path and position), and kept columns.

    If a `template` is given, it makes the text of the columns that it names, which a file or a row
    may lack. `prefix` is the template of the prefix of every piece, "" for none. `types` are the
    words or codes of the types as which kept columns are read, by name. Other kept columns have the
    table's own types, or are strings.
    `path` has the columns that stand in the path of the file that is read, with their values.
    """

    text: str = "text"
    id: str | None = None
    keep: tuple[str, ...] = ()
    template: str | None = None
    prefix: str = ""
    types: tuple[tuple[str, str], ...] = ()
    path: tuple[tuple[str, str | None], ...] = ()

    def reading(self, file: InputFile) -> "Columns":
        """Return the columns for reading a file, with its types and the values in its path."""
        path = choose_values(file.path, self.path_names)
        if not file.types and not path:
            return self
        return replace(self, types=(*self.types, *file.types), path=path)

    @property
    def path_names(self) -> list[str]:
        """The names of the columns that may stand in a file's path: neither texts nor ids."""
        names = [*self.of_prefix, *self.keep]
        own = [self.id, self.text]
        if self.of_text is not None:
            names += self.of_text.names
            own = [self.id]
        return [name for name in dict.fromkeys(names) if name not in own]

    @cached_property
    def path_values(self) -> dict[str, str | None]:
        """The values in the path of the file that is read, by column."""
        return dict(self.path)

    @cached_property
    def kinds(self) -> dict[str, ColumnType]:
        """The types as which kept columns are read, by name."""
        return {name: parse_type(code) for name, code in self.types}

    @property
    def before_pieces(self) -> Template | None:
        """The template of the prefix of every piece; None if pieces have no prefix."""
        return parse(self.prefix) if self.prefix else None

    @property
    def of_prefix(self) -> tuple[str, ...]:
        """The columns that the prefix names."""
        template = self.before_pieces
        return template.columns if template is not None else ()

    @property
    def of_text(self) -> Template | None:
        """The template of the text; None if a column is the text."""
        return parse(self.template) if self.template is not None else None

    @property
    def text_column(self) -> str | None:
        """The column that is the text; None if a template makes it."""
        return self.text if self.template is None else None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that make the text."""
        template = self.of_text
        return template.names if template is not None else (self.text,)

    @property
    def wanted(self) -> list[str]:
        """The names of all columns to read, each once."""
        ids = [self.id] if self.id else []
        return list(dict.fromkeys([*self.texts, *self.of_prefix, *ids, *self.keep]))


@dataclass
class Rows:
    """Rows before they become a unit, column by column; `reasons` is None for a good row.

    `prefixes` are the prefixes of each row's pieces, cut at the place of headings; empty without
    prefixes.
    """

    positions: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    kept: list[pa.Table] = field(default_factory=list)
    prefixes: list[tuple[str, ...]] = field(default_factory=list)

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows [start, stop) of a block, which has at most one kept table."""
        return Rows(
            self.positions[start:stop],
            self.texts[start:stop],
            self.ids[start:stop],
            self.reasons[start:stop],
            [table.slice(start, stop - start) for table in self.kept],
            self.prefixes[start:stop],
        )

    def extend(self, other: "Rows") -> None:
        """Append the rows of another block."""
        self.positions += other.positions
        self.texts += other.texts
        self.ids += other.ids
        self.reasons += other.reasons
        self.kept += other.kept
        self.prefixes += other.prefixes


Block = tuple[Rows, np.ndarray]  # rows and their sizes in bytes
