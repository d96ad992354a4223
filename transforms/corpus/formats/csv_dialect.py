"""Find the dialect of a CSV file by reading samples of it in every dialect that may be meant.

The reading with the fewest rows that do not fit is taken: rows with another number of values than
the header, or with wrong quotes. Without quotes, rows with a value in quotes and values of several
lines do not fit either; with quotes, lines of a value that are rows by themselves. If readings are
equal, CSV has quotes, TSV has none, and the delimiter is the most frequent one in the header.
"""

import functools
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.csv_readings import (
    DELIMITERS,
    SampleRows,
    count_folded,
    find_shapes,
    read_head_rows,
    read_in,
)
from sentence_beam.transforms.corpus.formats.csv_rows import with_long_fields
from sentence_beam.transforms.corpus.formats.csv_samples import Samples, read_samples
from sentence_beam.transforms.corpus.formats.dialect import ONE_COLUMN, WRAPPED, Dialect, make_shape
from sentence_beam.transforms.corpus.syntax import CsvSyntax

SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)
COMMENT = "#"
# pairs of `quoting` and `escape`, the most likely first
QUOTINGS = {
    "csv": [(True, False), (True, True), (False, False)],
    "tsv": [(False, False), (True, False), (True, True)],
}
LINES_OF_NAMES = 20  # that are looked at for names in quotes, and for rows below a comment


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


def read_dialect(file: InputFile) -> Dialect:
    """Return the dialect of a file. Raises SentenceBeamError if it is cut short or corrupt."""
    return find_dialect(file).dialect


@functools.lru_cache(16)
def find_dialect(file: InputFile) -> FoundDialect:
    """Find the dialect of a file. Raises SentenceBeamError if it is cut short or corrupt."""
    samples = read_samples(file)
    with with_long_fields():
        best = _choose_reading(file, samples)
    skipped = best.dialect.skip - file.syntax.csv.skip
    return FoundDialect(
        replace(_trim_names(best.dialect), single_lines=not best.several_lines),
        skipped,
        best.several_lines,
        samples.has('"'),
        samples.are_whole,
    )


def _choose_reading(file: InputFile, samples: Samples) -> SampleRows:
    """Return the reading of the samples that fits best; reads no more once one fits all rows."""
    is_tsv = file.format == "tsv"
    readings: list[SampleRows] = []
    for _, dialects in groupby(_make_candidates(file, samples), lambda dialect: dialect.delimiter):
        same: list[SampleRows] = []
        for dialect in dialects:
            same.append(read_in(dialect, samples))
            if dialect.quoting and not same[-1].misfits(is_tsv):
                break
        for reading in same:
            reading.folded = count_folded(reading, same)
        readings += same
        if not min(reading.misfits(is_tsv) for reading in same):
            break
    return min(readings, key=lambda reading: reading.misfits(is_tsv))


def _make_candidates(file: InputFile, samples: Samples) -> Iterator[Dialect]:
    """Yield the dialects that a file may have, the most likely one first."""
    syntax = file.syntax.csv
    separator = _find_separator(samples, syntax.skip)
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
        nulls=_choose_nulls(syntax),
    )
    for character in _find_delimiters(delimiter, start, samples, len(syntax.columns)):
        for quoting, escape in _choose_quotings(file, samples):
            dialect = replace(start, delimiter=character, quoting=quoting, escape=escape)
            dialect = _find_header(dialect, samples, syntax)
            # with one name in the header, a delimiter that was not given divides nothing
            if delimiter or character == ONE_COLUMN or len(dialect.header) > 1:
                yield dialect


def _choose_nulls(syntax: CsvSyntax) -> frozenset[str]:
    """Return the values that are null; the escape of tables without quotes has its own."""
    nulls = set(syntax.nulls)
    if syntax.quote is False and syntax.escape:
        nulls.add("\\N")
    return frozenset(nulls)


def _find_separator(samples: Samples, skip: int) -> str | None:
    """Return the delimiter that Excel's first line `sep=;` names; None without one."""
    match = SEPARATOR.fullmatch(next(_skip_lines(samples, skip), ""))
    return match[1] if match is not None else None


def _find_delimiters(
    delimiter: str | None, start: Dialect, samples: Samples, columns: int
) -> Iterator[str]:
    """Yield the delimiters that a file may have: those in its header, and none."""
    if delimiter is not None:
        yield delimiter
        return
    if columns:
        yield from (DELIMITERS if columns > 1 else [ONE_COLUMN])
        return
    header = _find_header_line(start, samples)
    present = [character for character in DELIMITERS if character in header]
    yield from sorted(present, key=header.count, reverse=True)
    yield ONE_COLUMN


def _find_header_line(start: Dialect, samples: Samples) -> str:
    """Return the first line that is neither blank nor a comment, without names in quotes.

    If it has no delimiter, the last comment is taken.
    """
    comment = ""
    lines = _skip_lines(samples, start.skip)
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


def _skip_lines(samples: Samples, skip: int) -> Iterator[str]:
    """Yield the lines of the head after the first ones."""
    return islice(io.StringIO(samples.head, newline=samples.line_end), skip, None)


def _choose_quotings(file: InputFile, samples: Samples) -> list[tuple[bool, bool]]:
    """Return the pairs of `quoting` and `escape` that a file may have, the most likely first."""
    syntax = file.syntax.csv
    quotings = QUOTINGS[file.format]
    if syntax.escape and syntax.quote is False:
        return [(False, True)]
    if syntax.quote is not None:
        quotings = [each for each in quotings if each[0] == syntax.quote]
    if syntax.escape is not None:
        return [(quoting, quoting and syntax.escape) for quoting in dict(quotings)]
    if not samples.has('"'):
        return quotings[:1]
    if not samples.has('\\"'):
        return [each for each in quotings if not each[1]]
    return quotings


def _find_header(dialect: Dialect, samples: Samples, syntax: CsvSyntax) -> Dialect:
    """Return a dialect with the names of the columns, and with the lines to skip above them."""
    if syntax.columns:
        return replace(dialect, header=syntax.columns)
    above = 0
    comment = None  # the number of the last comment
    for number, line in enumerate(_skip_lines(samples, dialect.skip)):
        if line.startswith(COMMENT):
            comment = number
        elif line.strip():
            above = number
            break
    else:
        return dialect
    first = _read_first_row(replace(dialect, skip=dialect.skip + above), samples)
    if comment is not None:
        named = replace(dialect, skip=dialect.skip + comment)
        names = _read_first_row(named, samples)
        if len(names) == len(first) > 1 and not _is_header(first, dialect, above, samples):
            bare = names[0].lstrip(f"{COMMENT} ") or names[0]
            return replace(named, header=(bare, *names[1:]))
    return replace(dialect, skip=dialect.skip + above, header=tuple(first))


def _is_header(first: list[str], dialect: Dialect, above: int, samples: Samples) -> bool:
    """Whether a row below a comment has other shapes than the rows below it, as names have."""
    rows = read_head_rows(replace(dialect, skip=dialect.skip + above), samples)
    below = [row for row in islice(rows, 1, LINES_OF_NAMES) if len(row) == len(first)]
    return any(make_shape(first[place]) not in shapes for place, shapes in find_shapes(below))


def _read_first_row(dialect: Dialect, samples: Samples) -> list[str]:
    return list(next(read_head_rows(dialect, samples), []))


def _trim_names(dialect: Dialect) -> Dialect:
    """Return the dialect with names without blanks, unless two would become equal."""
    names = tuple(name.strip() for name in dialect.header)
    if len(set(names)) < len(set(dialect.header)):
        return dialect
    trimmed = tuple(name for name in dialect.header if name != name.strip())
    return replace(dialect, header=names, trimmed=trimmed)
