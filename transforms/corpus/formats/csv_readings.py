"""Read samples of a CSV file in a dialect, and count what speaks against it."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sentence_beam.transforms.corpus.formats.csv_lines import HOLDS_ROWS, BadRow, CsvLines
from sentence_beam.transforms.corpus.formats.csv_rows import read_rows
from sentence_beam.transforms.corpus.formats.csv_samples import Sample, Samples
from sentence_beam.transforms.corpus.formats.dialect import ONE_COLUMN, WRAPPED, Dialect, make_shape

DELIMITERS = ",;\t|"
ESCAPED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
SHORT = 64  # characters
FEW = 3  # shapes


@dataclass
class SampleRows:
    """Rows of samples in a dialect: `rows` fit it, `bad` do not."""

    dialect: Dialect
    rows: list[list[str]]
    bad: int = 0
    delimiters: str = ""  # those of the header that the dialect does not have
    has_several_lines: bool = False  # whether a row has, also one without an end
    folded: int = 0  # values of several lines that are no rows, in a reading with quotes

    @property
    def several_lines(self) -> int:
        """The number of values with several lines."""
        if not self.has_several_lines:
            return 0
        return sum("\n" in value or "\r" in value for row in self.rows for value in row)

    def misfits(self, is_tsv: bool) -> int:
        """The number of rows that speak against the dialect."""
        return self.bad + self.folded + self._count_wrapped(is_tsv) + self._count_uncut()

    def _count_uncut(self) -> int:
        """The rows with a delimiter of the header that the dialect does not have."""
        marks = self.delimiters
        return sum(any(mark in value for mark in marks for value in row) for row in self.rows)

    def _count_wrapped(self, is_tsv: bool) -> int:
        """The rows with a value in quotes, read without quotes.

        TSV must need the quotes, or have them around all values of a column.
        """
        if self.dialect.quoting:
            return 0
        always = self._find_always_wrapped()
        return sum(
            any(
                _is_wrapped(value) and (not is_tsv or place in always or _needs_quotes(value))
                for place, value in enumerate(row)
            )
            for row in self.rows
        )

    def _find_always_wrapped(self) -> set[int]:
        """The places of columns whose values are all in quotes."""
        places = set(range(len(self.dialect.header)))
        for row in self.rows:
            places -= {place for place in places if row[place] and not _is_wrapped(row[place])}
            if not places:
                break
        return places


def _is_wrapped(value: str) -> bool:
    """Whether a value is in quotes, or is a quote, which is where one with line ends is cut."""
    if not (value.startswith('"') and value.endswith('"')):
        return False
    return value == '"' or bool(WRAPPED.fullmatch(value) or ESCAPED.fullmatch(value))


def _needs_quotes(value: str) -> bool:
    """Whether a value in quotes would be read wrongly without them."""
    inside = value[1:-1]
    return not inside or any(mark in inside for mark in '"\r\n')


def read_in(dialect: Dialect, samples: Samples) -> SampleRows:
    """Read the samples in a dialect; first with all quotes taken, to find the shapes of values."""
    reading = _read_once(replace(dialect, trusts_quotes=True), samples)
    if dialect.quoting and len(dialect.header) > 1:
        dialect = replace(dialect, shapes=find_shapes(reading.rows))
    if reading.has_several_lines and not dialect.trusts_quotes:
        reading = _read_once(dialect, samples)
    reading.dialect = dialect
    if dialect.delimiter == ONE_COLUMN and dialect.has_header:
        header = WRAPPED.sub("", "".join(dialect.header))
        reading.delimiters = "".join(mark for mark in DELIMITERS if mark in header)
    return reading


def find_shapes(rows: list[list[str]]) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return the shapes of the values in columns that have few, of values without blanks."""
    shapes_by_place = []
    for place, values in enumerate(zip(*rows, strict=True)):
        shapes: set[str] = set()
        for value in values:
            if len(value) > SHORT:
                break
            shapes.add(make_shape(value))
            if len(shapes) > FEW or any(map(str.isspace, value)):
                break
        else:
            shapes_by_place.append((place, frozenset(shapes)))
    return tuple(shapes_by_place)


def count_folded(reading: SampleRows, readings: list[SampleRows]) -> int:
    """Return the values of several lines that a reading without quotes cuts into rows.

    `readings` have the same delimiter.
    """
    dialect = reading.dialect
    if dialect.quoting or len(dialect.header) < 2:
        return 0
    others = [other.several_lines - other.bad for other in readings if other.dialect.quoting]
    return max([0, *others])


def _read_once(dialect: Dialect, samples: Samples) -> SampleRows:
    sample = SampleRows(dialect, [])
    for part in samples.parts:
        tried = [_read_part(dialect, part)]
        if not part.begins and dialect.quoting:
            tried.append(_read_part(dialect, part, within=True))
        best = min(tried, key=lambda reading: reading.bad)
        sample.rows += best.rows
        sample.bad += best.bad
        sample.has_several_lines |= best.has_several_lines
    return sample


def _read_part(dialect: Dialect, part: Sample, within: bool = False) -> SampleRows:
    """Read a sample, the first line of which is left out unless it begins the file.

    `within`: that line begins inside quotes.
    """
    sample = SampleRows(dialect, [])
    lines = _open_lines(dialect, part, within)
    rows = read_rows(lines, dialect, goes_on=not part.ends)
    if within or (part.begins and dialect.has_header):
        next(rows, None)
    width = len(dialect.header)
    for row in rows:
        if isinstance(row, BadRow):
            sample.bad += row.lines if row.reason == HOLDS_ROWS else 1
        elif len(row) == width:
            sample.rows.append(row)
        elif row:
            sample.bad += 1
    sample.bad += lines.count_open_rows()
    sample.has_several_lines = dialect.quoting and (lines.has_folded or bool(lines.row))
    return sample


def _open_lines(dialect: Dialect, part: Sample, within: bool = False) -> CsvLines:
    """Return the lines of a sample from the first one that begins a row."""
    text = f'"{part.text}' if within else part.text
    lines = CsvLines(io.StringIO(text, newline=dialect.line_end), dialect)
    if part.begins:
        lines.skip(dialect.skip)
    elif not within:
        lines.skip(1)
    return lines


def read_head_rows(dialect: Dialect, samples: Samples) -> Iterator[list[str]]:
    """Yield the rows of the head, with the header."""
    return read_rows(_open_lines(dialect, samples.parts[0]), dialect)
