"""Find the dialect of a CSV file by reading samples of it in every dialect that may be meant.

The reading counts with the fewest rows that do not fit: rows with another number of values than the
header, or with wrong quotes. Of a reading without quotes, also rows with a value in quotes, and
values of several lines; of one with quotes, also the lines in a value that are rows by themselves.
If readings are equal, CSV has
quotes, TSV has none, and the delimiter is the most frequent one in the header.
"""

import functools
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from transforms.corpus.files import InputFile
from transforms.corpus.formats.csv_lines import HOLDS_ROWS, BadRow, CsvLines
from transforms.corpus.formats.csv_rows import long_fields, rows_in
from transforms.corpus.formats.csv_samples import Sample, Samples, read_samples
from transforms.corpus.formats.dialect import ONE_COLUMN, WRAPPED, Dialect, shape_of
from transforms.corpus.syntax import CsvSyntax

DELIMITERS = ",;\t|"
ESCAPED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)
COMMENT = "#"
LINES_OF_NAMES = 20  # that are looked at for names in quotes, and for rows below a comment
SHORT = 64  # characters
FEW = 3  # shapes


@dataclass(frozen=True)
class FoundDialect:
    """The dialect of a file, and what its samples show.

    `skipped` lines above the header were not asked for. `several_lines` values in the samples have
    several lines. `has_quotes`: a sample has a quote. `is_whole`: the samples are the whole file.
    """

    dialect: Dialect
    skipped: int
    several_lines: int
    has_quotes: bool
    is_whole: bool

    @property
    def title(self) -> str:
        """The dialect and the facts in the words of a summary."""
        words = self.dialect.title
        if not self.has_quotes and not self.dialect.trusts_quotes:
            words = words.replace('" quoted', "no quotes")
        if self.several_lines:
            values = "1 value" if self.several_lines == 1 else f"{self.several_lines:,} values"
            words += f", {values} of several lines"
            if not self.is_whole:
                words += " in samples"
        if self.skipped:
            lines = "1 line" if self.skipped == 1 else f"{self.skipped} lines"
            words += f", {lines} above the header skipped"
        return words


def dialect_of(file: InputFile) -> Dialect:
    """Return the dialect of a file. Raises SentenceBeamError if it is cut short or corrupt."""
    return find_dialect(file).dialect


@functools.lru_cache(16)
def find_dialect(file: InputFile) -> FoundDialect:
    """Find the dialect of a file. Raises SentenceBeamError if it is cut short or corrupt."""
    samples = read_samples(file)
    with long_fields():
        readings = [_read(dialect, samples) for dialect in _candidates(file, samples)]
    is_tsv = file.format == "tsv"
    for reading in readings:
        reading.folded = _count_folded(reading, readings)
    best = min(readings, key=lambda reading: reading.misfits(is_tsv))
    skipped = best.dialect.skip - file.syntax.csv.skip
    return FoundDialect(
        replace(_with_trimmed_names(best.dialect), single_lines=not best.several_lines),
        skipped,
        best.several_lines,
        samples.has('"'),
        samples.are_whole,
    )


def _candidates(file: InputFile, samples: Samples) -> Iterator[Dialect]:
    """Yield the dialects that a file may have, the most likely one first."""
    syntax = file.syntax.csv
    separator = _separator(samples, syntax.skip)
    skip = syntax.skip
    delimiter = file.syntax.delimiter
    if separator is not None:
        skip += 1
        delimiter = delimiter or separator
    if delimiter is None and file.format == "tsv":
        delimiter = "\t"
    start = Dialect(
        samples.encoding,
        "",
        False,
        line_end=samples.line_end,
        trusts_quotes=syntax.quote is True,
        skip=skip,
        has_header=not syntax.columns,
        nulls=_nulls(syntax),
    )
    for character in _delimiters(delimiter, start, samples, len(syntax.columns)):
        for quoting, escape in _quotings(file, samples):
            dialect = replace(start, delimiter=character, quoting=quoting, escape=escape)
            dialect = _with_header(dialect, samples, syntax)
            # with one name in the header, a delimiter that was not given divides nothing
            if delimiter or character == ONE_COLUMN or len(dialect.header) > 1:
                yield dialect


def _nulls(syntax: CsvSyntax) -> frozenset[str]:
    """Return the values that are null; the escape of tables without quotes has its own."""
    nulls = set(syntax.nulls)
    if syntax.quote is False and syntax.escape:
        nulls.add("\\N")
    return frozenset(nulls)


def _separator(samples: Samples, skip: int) -> str | None:
    """Return the delimiter that Excel's first line `sep=;` names; None without one."""
    match = SEPARATOR.fullmatch(next(_lines_after(samples, skip), ""))
    if match is None:
        return None
    return match[1]


def _delimiters(given: str | None, start: Dialect, samples: Samples, columns: int) -> Iterator[str]:
    """Yield the delimiters that a file may have: those in its header, and none."""
    if given is not None:
        yield given
        return
    if columns:
        if columns > 1:
            yield from DELIMITERS
        else:
            yield ONE_COLUMN
        return
    header = _header_line(start, samples)
    known = [character for character in DELIMITERS if character in header]
    yield from sorted(known, key=header.count, reverse=True)
    yield ONE_COLUMN


def _header_line(start: Dialect, samples: Samples) -> str:
    """Return the first line that is neither blank nor a comment, without names in quotes.

    If it has no delimiter, the last comment is taken.
    """
    comment = ""
    lines = _lines_after(samples, start.skip)
    for line in lines:
        if line.startswith(COMMENT):
            comment = line
        elif line.strip():
            # a name in quotes may have several lines
            text = WRAPPED.sub("", "".join([line, *islice(lines, LINES_OF_NAMES)]))
            header = WRAPPED.sub("", line) + text.partition("\n")[0]
            if comment and not any(character in header for character in DELIMITERS):
                break
            return header
    return comment


def _lines_after(samples: Samples, skip: int) -> Iterator[str]:
    """Yield the lines of the head after the first ones."""
    return islice(io.StringIO(samples.head, newline=samples.line_end), skip, None)


def _quotings(file: InputFile, samples: Samples) -> list[tuple[bool, bool]]:
    """Return the pairs of `quoting` and `escape` that a file may have, the most likely first."""
    syntax = file.syntax.csv
    found = [(True, False), (True, True), (False, False)]
    if file.format == "tsv":
        found = [(False, False), (True, False), (True, True)]
    if syntax.escape and syntax.quote is False:
        return [(False, True)]
    if syntax.quote is not None:
        found = [each for each in found if each[0] == syntax.quote]
    if syntax.escape is not None:
        return [(quoting, quoting and syntax.escape) for quoting in dict(found)]
    if not samples.has('"'):
        return found[:1]
    if not samples.has('\\"'):
        return [each for each in found if not each[1]]
    return found


def _with_header(dialect: Dialect, samples: Samples, syntax: CsvSyntax) -> Dialect:
    """Return a dialect with the names of the columns, and with the lines to skip above them."""
    if syntax.columns:
        return replace(dialect, header=syntax.columns)
    above = 0
    comment = None  # the number of the last comment
    for number, line in enumerate(_lines_after(samples, dialect.skip)):
        if line.startswith(COMMENT):
            comment = number
        elif line.strip():
            above = number
            break
    else:
        return dialect
    first = _first_row(replace(dialect, skip=dialect.skip + above), samples)
    if comment is not None:
        named = replace(dialect, skip=dialect.skip + comment)
        names = _first_row(named, samples)
        if len(names) == len(first) > 1 and not _is_header(first, dialect, above, samples):
            bare = names[0].lstrip(f"{COMMENT} ") or names[0]
            return replace(named, header=(bare, *names[1:]))
    return replace(dialect, skip=dialect.skip + above, header=tuple(first))


def _is_header(first: list[str], dialect: Dialect, above: int, samples: Samples) -> bool:
    """Whether a row below a comment has other shapes than the rows below it, as names have."""
    rows = _rows(replace(dialect, skip=dialect.skip + above), samples.parts[0])
    below = [row for row in islice(rows, 1, LINES_OF_NAMES) if len(row) == len(first)]
    return any(shape_of(first[place]) not in shapes for place, shapes in _shapes(below))


def _first_row(dialect: Dialect, samples: Samples) -> list[str]:
    row = next(_rows(dialect, samples.parts[0]), [])
    return list(row)


def _with_trimmed_names(dialect: Dialect) -> Dialect:
    """Return the dialect with names without blanks, unless two would become equal."""
    names = tuple(name.strip() for name in dialect.header)
    if len(set(names)) < len(set(dialect.header)):
        return dialect
    trimmed = tuple(name for name in dialect.header if name != name.strip())
    return replace(dialect, header=names, trimmed=trimmed)


@dataclass
class _SampleRows:
    """Rows of samples in a dialect: `rows` fit it, `bad` do not."""

    dialect: Dialect
    rows: list[list[str]]
    bad: int = 0
    delimiters: str = ""  # those of the header that the dialect does not have
    folded: int = 0  # values of several lines that are no rows, in a reading with quotes

    @property
    def several_lines(self) -> int:
        """The number of values with several lines."""
        if not self.dialect.quoting:
            return 0
        return sum("\n" in value or "\r" in value for row in self.rows for value in row)

    def misfits(self, is_tsv: bool) -> int:
        """The number of rows that speak against the dialect."""
        return self.bad + self.folded + self._wrapped(is_tsv) + self._uncut()

    def _uncut(self) -> int:
        """The rows with a delimiter of the header that the dialect does not have."""
        found = self.delimiters
        if not found:
            return 0
        return sum(any(mark in value for mark in found for value in row) for row in self.rows)

    def _wrapped(self, is_tsv: bool) -> int:
        """The rows with a value in quotes, read without quotes.

        TSV must need the quotes, or have them around all values of a column.
        """
        if self.dialect.quoting:
            return 0
        always = self._always_wrapped()
        return sum(
            any(
                _is_wrapped(value) and (not is_tsv or place in always or _needs_quotes(value))
                for place, value in enumerate(row)
            )
            for row in self.rows
        )

    def _always_wrapped(self) -> set[int]:
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


def _read(dialect: Dialect, samples: Samples) -> _SampleRows:
    """Read the samples in a dialect; first with all quotes taken, to find the shapes of values."""
    if dialect.quoting and len(dialect.header) > 1 and samples.has('"'):
        first = _read_once(replace(dialect, trusts_quotes=True), samples)
        dialect = replace(dialect, shapes=_shapes(first.rows))
    reading = _read_once(dialect, samples)
    if dialect.delimiter == ONE_COLUMN and dialect.has_header:
        header = WRAPPED.sub("", "".join(dialect.header))
        reading.delimiters = "".join(mark for mark in DELIMITERS if mark in header)
    return reading


def _shapes(rows: list[list[str]]) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return the shapes of the values in columns that have few, of values without blanks."""
    found = []
    for place, values in enumerate(zip(*rows, strict=True)):
        shapes: set[str] = set()
        for value in values:
            if len(value) > SHORT:
                break
            shapes.add(shape_of(value))
            if len(shapes) > FEW or any(map(str.isspace, value)):
                break
        else:
            found.append((place, frozenset(shapes)))
    return tuple(found)


def _count_folded(reading: _SampleRows, readings: list[_SampleRows]) -> int:
    """Return the values of several lines that a reading without quotes cuts into rows."""
    dialect = reading.dialect
    if dialect.quoting or len(dialect.header) < 2:
        return 0
    others = [
        other.several_lines - other.bad
        for other in readings
        if other.dialect.quoting and other.dialect.delimiter == dialect.delimiter
    ]
    return max(0, *others, 0)


def _read_once(dialect: Dialect, samples: Samples) -> _SampleRows:
    found = _SampleRows(dialect, [])
    for part in samples.parts:
        tried = [_read_part(dialect, part)]
        if not part.begins and dialect.quoting:
            tried.append(_read_part(dialect, part, within=True))
        best = min(tried, key=lambda reading: reading.bad)
        found.rows += best.rows
        found.bad += best.bad
    return found


def _read_part(dialect: Dialect, part: Sample, within: bool = False) -> _SampleRows:
    """Read a sample, the first line of which is left out unless it begins the file.

    `within`: that line begins inside quotes.
    """
    found = _SampleRows(dialect, [])
    rows = _rows(dialect, part, within)
    if dialect.has_header or not part.begins:
        next(rows, None)
    width = len(dialect.header)
    for row in rows:
        if isinstance(row, BadRow):
            found.bad += row.lines if row.reason == HOLDS_ROWS else 1
        elif len(row) == width:
            found.rows.append(row)
        elif row:
            found.bad += 1
    return found


def _rows(dialect: Dialect, part: Sample, within: bool = False) -> Iterator[list[str]]:
    """Yield the rows of a sample; an open last row whose lines are rows is a BadRow."""
    text = part.text
    if within:
        text = f'"{text}'
    lines = CsvLines(io.StringIO(text, newline=dialect.line_end), dialect)
    if part.begins:
        lines.skip(dialect.skip)
    elif not within:
        lines.skip(1)
        yield []
    yield from rows_in(lines, dialect, goes_on=not part.ends)
    rows = lines.open_rows()
    if rows:
        yield BadRow("", HOLDS_ROWS, rows)
