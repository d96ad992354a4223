"""The syntax of input files, as far as options say it; each file decides the rest."""

import re
from dataclasses import dataclass
from typing import Any, Self

from sentence_beam.transforms.base.compact import pickle_by_values
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.spec_options import Grammar, Option

CSV = "csv"
UNNAMED = "-"  # a column that is not read
GRAMMAR = Grammar(
    CSV,
    {
        CSV: {
            "quote": Option(("none", '"'), None),
            "escape": Option(("\\", '"'), None),
            "columns": Option((), None, form="A/B/-", pattern=".+"),
            "null": Option((), None, form="A/B", pattern=".+"),
            "skip": Option((), None, number=True),
        }
    },
)
SLASH = re.compile("(?<!/)/(?!/)")  # between two words; a doubled one is a character


@dataclass(frozen=True)
class CsvSyntax:
    r"""A parsed SPEC of `--csv`; None, and no columns, if the file decides.

    `quote`: whether values may be in quotes. `escape`: whether a backslash escapes a quote, instead
    of another quote. `columns` are the names of the columns of a file without a header, "" for one
    that is not read. `nulls` are the values that are null. `skip` lines are above the header.

    >>> str(CsvSyntax.parse(r"skip=2,quote=none,null=NA/N//A/\N"))
    'quote=none,null=NA/N//A/\\N,skip=2'
    """

    quote: bool | None = None
    escape: bool | None = None
    columns: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()
    skip: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the syntax of a SPEC; "" leaves everything to the file. Raises OptionError."""
        if not text:
            return cls()
        items = GRAMMAR.read_items(text, CSV)
        quote = items.get("quote")
        escape = items.get("escape")
        columns = tuple("" if name == UNNAMED else name for name in _split(text, "columns", items))
        named = [name for name in columns if name]
        if columns and not named:
            raise OptionError(f"csv {text!r}: columns={UNNAMED} names no column; name one")
        if len(set(named)) < len(named):
            raise OptionError(f"csv {text!r}: columns names a column twice")
        return cls(
            None if quote is None else quote != "none",
            None if escape is None else escape == "\\",
            columns,
            _split(text, "null", items),
            int(items.get("skip", 0)),
        )

    def __str__(self) -> str:
        items = []
        if self.quote is not None:
            items.append('quote="' if self.quote else "quote=none")
        if self.escape is not None:
            items.append("escape=\\" if self.escape else 'escape="')
        if self.columns:
            items.append(f"columns={_join_words([name or UNNAMED for name in self.columns])}")
        if self.nulls:
            items.append(f"null={_join_words(self.nulls)}")
        if self.skip:
            items.append(f"skip={self.skip}")
        return ",".join(items)


def _split(text: str, key: str, items: dict[str, Any]) -> tuple[str, ...]:
    """Return the words of a value, which slashes separate. Raises OptionError for an empty one."""
    if key not in items:
        return ()
    words = tuple(word.replace("//", "/") for word in SLASH.split(items[key]))
    if not all(words):
        raise OptionError(
            f"csv {text!r}: {key} has an empty word; say {key}=A/B, and // for a slash in a word"
        )
    return words


def _join_words(words: Any) -> str:
    return "/".join(word.replace("/", "//") for word in words)


def check_csv_spec(text: str) -> str:
    """Return a SPEC of `--csv` in its canonical form. Raises OptionError for another text."""
    return str(CsvSyntax.parse(text))


@pickle_by_values
@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of the files of a run: options that are None, or empty, leave it to each file.

    `delimiter` is that of CSV and TSV. `json_rows` names the array with the rows in JSON files, by
    keys with dots between them.
    """

    delimiter: str | None = None
    csv: CsvSyntax = CsvSyntax()
    json_rows: str | None = None

    @classmethod
    def from_options(cls, options: Any) -> Self:
        """Return the syntax that the options `delimiter`, `csv` and `json_rows` say."""
        csv = CsvSyntax.parse(options.csv or "")
        return cls(options.delimiter, csv, options.json_rows or None)


AS_FOUND = Syntax()
