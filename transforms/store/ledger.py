"""The ledger: every planned row is written or rejected, every written row has one origin."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields

from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.corpus.buckets import Buckets, parse_name
from sentence_beam.transforms.store.records import UnitRecord

LEAST_REJECTED = 10  # rows: fewer end no run if others are left
LEAST_UNKNOWN = 100  # tokens: fewer end no run that brings a store up to date
LEAST_UNKNOWN_FIRST = 10  # tokens, of a store's first run


@dataclass(frozen=True)
class Ledger:
    """Counts over the units of one run: rows, tokens, splits of batches, and pieces.

    `real`, `padded` and `lost` count tokens. `known` and `unknown` are the texts' own tokens that
    the vocabulary has, and those for text that it lacks. `blank` of the rejected rows are blank
    lines of text files, `forgotten` ones were erased.

    If rows are pieces, `read`, `written` and `rejected` count documents, and `embedded`, `reused`,
    `duplicates` and `carried` sum to `pieces`; else `pieces` is None.
    """

    read: int = 0
    written: int = 0
    rejected: int = 0
    embedded: int = 0
    reused: int = 0
    duplicates: int = 0
    carried: int = 0
    real: int = 0
    padded: int = 0
    truncated_rows: int = 0
    lost: int = 0
    fallbacks: int = 0
    oom_splits: int = 0
    blank: int = 0
    known: int = 0
    unknown: int = 0
    forgotten: int = 0
    pieces: int | None = None

    @classmethod
    def of(cls, units: Iterable[UnitRecord]) -> "Ledger":
        """Return the sums over units.

        Carried units count as rows only; the run that made them counted their tokens.
        """
        total: dict[str, int] = defaultdict(int)
        for unit in units:
            total["read"] += unit.read
            total["written"] += unit.written
            if unit.documents is not None:
                total["pieces"] += unit.rows
            total["rejected"] += unit.rejected
            total["blank"] += unit.blank
            total["forgotten"] += unit.forgotten
            total["carried"] += unit.carried
            if not unit.carried:
                for name in (
                    "embedded",
                    "reused",
                    "duplicates",
                    "real",
                    "padded",
                    "lost",
                    "fallbacks",
                    "oom_splits",
                ):
                    total[name] += getattr(unit, name)
                total["known"] += unit.known
                total["unknown"] += unit.unknown
                total["truncated_rows"] += unit.truncated
        return cls(**total)

    def __add__(self, other: "Ledger") -> "Ledger":
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        known = [pieces for pieces in (self.pieces, other.pieces) if pieces is not None]
        if not known:
            return Ledger(**sums)
        return Ledger(**sums, pieces=sum(known))

    def rejects_too_many(self, share: float) -> bool:
        """Return whether too large a share of the rows was rejected.

        Blank lines of text files and rows that were erased do not count.

        Fewer than LEAST_REJECTED rows are too many only if the share is 0 or no row is left.
        """
        expected = self.blank + self.forgotten
        rejected = self.rejected - expected
        if rejected <= share * (self.read - expected):
            return False
        return rejected >= LEAST_REJECTED or share == 0 or self.written == 0

    def has_too_many_unknown(self, share: float, least: int) -> bool:
        """Return whether at least `least` tokens and more than `share` are unknown."""
        return self.unknown >= least and self.unknown > share * (self.known + self.unknown)

    def check(self) -> None:
        """Raise LedgerError unless the counts add up.

        read = written + rejected, and written = embedded + reused + duplicates + carried.
        """
        if self.read != self.written + self.rejected:
            raise LedgerError(
                f"ledger: {self.read} rows read are not {self.written} written + {self.rejected}"
                " rejected; nothing committed"
            )
        made = self.embedded + self.reused + self.duplicates + self.carried
        rows = self.written
        what = "rows"
        if self.pieces is not None:
            rows = self.pieces
            what = "pieces"
        if rows != made:
            raise LedgerError(
                f"ledger: {rows} {what} written are not {self.embedded} embedded + {self.reused}"
                f" reused + {self.duplicates} duplicates + {self.carried} carried; nothing"
                " committed"
            )


COUNTED = tuple(f.name for f in fields(Ledger) if f.name != "pieces")


@dataclass(frozen=True)
class PlannedSpan:
    """A span of the plan: units must tile its range, and all its rows (if known) must be read."""

    name: str
    file: str
    start: int
    stop: int | None
    rows: int | None
    carried: bool


PLAN_FIELDS = tuple(f.name for f in fields(PlannedSpan))


def check_plan(planned: Iterable[PlannedSpan], units: Iterable[UnitRecord]) -> None:
    """Raise LedgerError unless every planned unit is there exactly once, and no other."""
    by_span: dict[str, list[UnitRecord]] = defaultdict(list)
    for unit in units:
        by_span[span_name(unit.unit)].append(unit)
    for span in planned:
        _check_span(span, by_span.pop(span.name, []))
    if by_span:
        raise LedgerError(f"ledger: unit {min(by_span)} was never planned; nothing committed")


def check_counted(uncounted: list[str]) -> None:
    """Raise LedgerError for files of the plan with rows that no planned unit counts."""
    if uncounted:
        raise LedgerError(
            f"ledger: no unit counts the rows of {min(uncounted)} ({len(uncounted):,} such files);"
            " nothing committed"
        )


def check_buckets(planned: Buckets, numbers: Iterable[int], units: Iterable[UnitRecord]) -> None:
    """Raise LedgerError unless exactly these buckets are there, whole or in all pieces."""
    pieces: dict[int, list[int | None]] = {bucket: [] for bucket in numbers}
    for unit in units:
        bucket = parse_name(unit.unit)
        if bucket is None or bucket.bits != planned.bits or bucket.number not in pieces:
            raise LedgerError(f"ledger: unit {unit.unit} was never planned; nothing committed")
        pieces[bucket.number].append(bucket.piece)
    for number, found in pieces.items():
        whole = range(1 << max(1, (len(found) - 1).bit_length()))  # pieces are a power of two
        if found != [None] and sorted(k or 0 for k in found) != list(whole):
            raise LedgerError(
                f"ledger: planned unit {planned.name(number)} was not finished; nothing committed"
            )


def pieces_apart(units: Iterable[UnitRecord]) -> int:
    """Return the sum of the units' pieces less that of their documents' pieces, modulo 2**64."""
    there = wanted = 0
    for unit in units:
        there += int(unit.pieces_sum or "0", 16)
        wanted += int(unit.documents_sum or "0", 16)
    return (there - wanted) % (1 << 64)


def check_bucket_rows(planned: Buckets, read: int) -> None:
    """Raise LedgerError unless the planned number of rows was read."""
    if read != planned.rows:
        raise LedgerError(f"ledger: {read} rows read of {planned.rows} planned; nothing committed")


def check_pieces(units: Iterable[UnitRecord]) -> None:
    """Raise LedgerError unless each document has its pieces once, and no other row exists."""
    check_apart(pieces_apart(units))


def check_apart(pieces: int) -> None:
    """Raise LedgerError if `pieces_apart`, summed over all units in any parts, is not 0."""
    if pieces % (1 << 64):
        raise LedgerError("ledger: a document lacks pieces or has some twice; nothing committed")


def span_name(unit: str) -> str:
    """The name of the span that a unit came from."""
    return unit.partition(".")[0]


def place_of(unit: UnitRecord) -> tuple[int, float]:
    """Return the sort key of a unit within its span."""
    start, stop = unit.range
    if stop is None:
        return start, float("inf")
    return start, stop


def _end_of(stop: int | None) -> int:
    return -1 if stop is None else stop


def _check_span(span: PlannedSpan, units: list[UnitRecord]) -> None:
    expected = span.start
    # A carried span is one unit; a span cut again has units .0, .1, ... whose ranges follow each
    # other. Of a document that several units hold, all but the last have an empty range.
    for unit in sorted(units, key=place_of):
        if unit.range[0] != expected:
            raise LedgerError(
                f"ledger: {span.file}: unit {unit.unit} is doubled or out of place; nothing"
                " committed"
            )
        expected = _end_of(unit.range[1])
    if not units or expected != _end_of(span.stop):
        raise LedgerError(
            f"ledger: {span.file}: planned unit {span.name} was not finished; nothing committed"
        )
    read = sum(unit.read for unit in units)
    if span.rows is not None and read != span.rows:
        raise LedgerError(
            f"ledger: {span.file}: {read} rows read of {span.rows} planned in {span.name}; nothing"
            " committed"
        )
