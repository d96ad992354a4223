"""Blocks of rows on their way into units, each row with the reason against it, if there is one."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from transforms.corpus.column_types import TYPES, ColumnType
from transforms.corpus.files import InputFile
from transforms.corpus.template import Template, parse

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
    """The columns of the input with text and id (None: made from path and position), and those
    carried along.

    Where a `template` is given, the text is made of the columns that it names, which a file or a
    row may lack. `prefix` is one for what stands before every piece of a document, "" for nothing.
    `types` are the words for the types that kept columns are read as, by name; of others tables
    keep their own types, and other files give strings.
    """

    text: str = "text"
    id: str | None = None
    keep: tuple[str, ...] = ()
    template: str | None = None
    prefix: str = ""
    types: tuple[tuple[str, str], ...] = ()

    def reading(self, file: InputFile) -> "Columns":
        """Return the columns for reading a file, with the file's own types."""
        if not file.types:
            return self
        return replace(self, types=(*self.types, *file.types))

    @cached_property
    def kinds(self) -> dict[str, ColumnType]:
        """The types that kept columns are read as, by name."""
        return {name: TYPES[word] for name, word in self.types}

    @property
    def before_pieces(self) -> Template | None:
        """The template of the prefix of every piece, None if pieces have no prefix."""
        return parse(self.prefix) if self.prefix else None

    @property
    def of_prefix(self) -> tuple[str, ...]:
        """The columns that the prefix names."""
        template = self.before_pieces
        return template.columns if template else ()

    @property
    def of_text(self) -> Template | None:
        """The template of the text, None if a column is the text."""
        return parse(self.template) if self.template is not None else None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that make the text."""
        template = self.of_text
        return template.names if template else (self.text,)

    @property
    def wanted(self) -> list[str]:
        """The names of all columns to read, each once."""
        names = [*self.texts, *self.of_prefix]
        if self.id:
            names.append(self.id)
        return list(dict.fromkeys([*names, *self.keep]))


@dataclass
class Rows:
    """Rows on their way into a unit, column by column; `reasons` is None for a row that is good so
    far.

    `prefixes` are what stands before the pieces of each row, cut where headings go; empty where
    nothing does.
    """

    positions: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    kept: list[pa.Table] = field(default_factory=list)
    prefixes: list[tuple[str, ...]] = field(default_factory=list)

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows [start, stop) of a block (which has one kept table at most)."""
        part = [
            column[start:stop] for column in (self.positions, self.texts, self.ids, self.reasons)
        ]
        kept = [table.slice(start, stop - start) for table in self.kept]
        return Rows(*part, kept, self.prefixes[start:stop])  # type: ignore[arg-type, call-arg]

    def extend(self, other: "Rows") -> None:
        """Append another run of rows."""
        for name in self.__dataclass_fields__:
            getattr(self, name).extend(getattr(other, name))


Block = tuple[Rows, np.ndarray]  # rows and their sizes in bytes
