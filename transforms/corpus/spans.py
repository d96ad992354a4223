"""Spans: parts of input files that are read in one go; each format cuts its files into spans.

Tokens are estimated: four bytes of UTF-8 a token and two more a row.
"""

from dataclasses import dataclass

from sentence_beam.transforms.base.compact import pickle_by_values
from sentence_beam.transforms.corpus.files import InputFile

UNIT_TOKENS = 262_144  # default for one unit
BYTES_PER_TOKEN = 4
TOKENS_PER_ROW = 2
RANGE_UNITS = 8  # in a range of rows of a large row group
# times the size of a span or unit: neighbours with at most that together are one, so that the rest
# of a file or span does not become a tiny one
MOST = 1.25
CUT_BYTES = 1_000_000_000  # of a span at most
PACKS = 3  # factor by which compression makes text smaller
# leaves room for the tokens per row, so that a byte range is rarely cut again
TEXT_BYTES_PER_TOKEN = 3


@pickle_by_values
@dataclass(frozen=True, slots=True)
class Span:
    """A part of one file: rows [start, stop) of a table, bytes [start, stop) of uncompressed text.

    A table is a file of any format but text and JSONL. `stop` is None if only reading shows the
    length. `rows` is exact for Parquet, ORC, whole files and parts of CSV, Arrow and Avro, None for
    others; `tokens` is an estimate. `offset` is where a reader finds the first row: a byte of CSV
    and Avro, the number of a record batch of Arrow or of a stripe of ORC.
    """

    file: InputFile
    number: int
    start: int
    stop: int | None
    row_groups: tuple[int, ...] = ()
    rows: int | None = None
    tokens: int = 0
    offset: int = 0

    @property
    def name(self) -> str:
        """The unit's name, or the beginning of its units' names.

        `number` is the first row group (see `parquet` for its ranges) or the first byte.
        """
        return f"{self.file.key}-{self.number:012d}"


def estimate_tokens(text_bytes: int, rows: int) -> int:
    """Return the estimated tokens of rows with these bytes of text."""
    return text_bytes // BYTES_PER_TOKEN + TOKENS_PER_ROW * rows


def choose_span_bytes(head: int, text_bytes: int, rows: int, unit_tokens: int) -> int:
    """Return the bytes of a file that hold about `unit_tokens`, by the share of text in its head.

    The head has `head` bytes, with this much text in so many rows.
    """
    if not head:
        return TEXT_BYTES_PER_TOKEN * unit_tokens
    tokens = max(1, estimate_tokens(text_bytes, rows))
    return min(CUT_BYTES, max(1, head * unit_tokens // tokens))


def choose_span_rows(text_bytes: int, rows: int, unit_tokens: int) -> int:
    """Return the rows of a table that hold about `unit_tokens`, by the text of its first rows."""
    counted = max(1, rows)
    return max(1, counted * unit_tokens // estimate_tokens(text_bytes, counted))


def make_whole_span(file: InputFile, is_packed: bool) -> list[Span]:
    """The one span of a file that is read from start to end; none for an empty file.

    Text is assumed to pack to a third; a wrong guess only makes the estimate wrong.
    """
    if not file.size:
        return []
    size = PACKS * file.size if is_packed else file.size
    return [Span(file, 0, 0, None, tokens=size // BYTES_PER_TOKEN)]
