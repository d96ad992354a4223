"""Groups: small files that share units, so that a thousand files of two lines do not make a
thousand shards.

A file's group is the first bits of the hash of its relative path: a file that is new or changed
touches one group.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from transforms.corpus.files import InputFile
from transforms.corpus.formats.registry import reader_of
from transforms.corpus.row_blocks import Columns
from transforms.corpus.rows import MOST, UnitRows, read_span
from transforms.corpus.spans import (
    BYTES_PER_TOKEN,
    PACKS,
    TEXT_BYTES_PER_TOKEN,
    Span,
    estimated_tokens,
)

SMALL = 16  # so many small files make a unit at most; fewer are no reason to group them
GROWTH = 4  # times the tokens for which the number of groups was chosen
Item = TypeVar("Item")
NAME = re.compile(r"f(\d{1,2})-([0-9a-f]+)(?:\.\d+)?")


@dataclass(frozen=True)
class GroupSpan:
    """Spans of small files, read one after the other into the units of one group. They count rows,
    from 0 on.
    """

    name: str
    spans: tuple[Span, ...]
    start: int = 0
    stop: int | None = None

    @property
    def file(self) -> InputFile:
        """The first of the files."""
        return self.spans[0].file

    @property
    def rows(self) -> int | None:
        """The rows of all files; None where a file's are not known."""
        counts = [span.rows for span in self.spans]
        return None if None in counts else sum(filter(None, counts))

    @property
    def tokens(self) -> int:
        """The estimated tokens of all files."""
        return sum(span.tokens for span in self.spans)


AnySpan = Span | GroupSpan


def spans_of(span: AnySpan) -> tuple[Span, ...]:
    """The spans of files that a span is made of."""
    return span.spans if isinstance(span, GroupSpan) else (span,)


def is_small(file: InputFile, unit_tokens: int) -> bool:
    """Whether a file has less than a sixteenth of a unit, as far as its size tells."""
    return SMALL * _tokens_by_size(file) < unit_tokens


def _tokens_by_size(file: InputFile) -> int:
    if reader_of(file).is_by_line and not file.compression:
        return file.size // TEXT_BYTES_PER_TOKEN
    return PACKS * file.size // BYTES_PER_TOKEN


def choose_bits(small: list[InputFile], unit_tokens: int, known: int | None) -> int | None:
    """The bits of the groups' number: those known, unless groups have become large; None for too
    few small files.

    >>> files = [InputFile("", "", "text", "", 3000, "", "") for _ in range(100)]
    >>> choose_bits(files, 20_000, None), choose_bits(files[:15], 20_000, None)
    (3, None)
    >>> choose_bits(files, 20_000, 1)
    1
    """
    units = sum(map(_tokens_by_size, small)) / unit_tokens
    if known is not None and units <= GROWTH << known:
        return known
    if known is None and len(small) < SMALL:
        return None
    return max(known or 0, max(0, int(units + 0.999_999) - 1).bit_length())


def group_name(relative: str, bits: int) -> str:
    """The name of the group of a file with this relative path, which is that of the group's units.

    >>> group_name("a.md", 0), group_name("a.md", 5)
    ('f0-0', 'f5-1f')
    """
    number = int.from_bytes(hashlib.sha256(relative.encode()).digest()[:8]) >> (64 - bits)
    return f"f{bits}-{number:0{max(1, -(-bits // 4))}x}"


def bits_of(unit: str) -> int | None:
    """The bits of the group that a unit is of; None for other units.

    >>> bits_of("f6-0a.3"), bits_of("6-0a"), bits_of("f123456789abcdef-000000000000")
    (6, None, None)
    """
    found = NAME.fullmatch(unit)
    return int(found[1]) if found else None


def read_group(group: GroupSpan, columns: Columns, unit_tokens: int) -> Iterator[UnitRows]:
    """The group's units in order; at least one, if only an empty one.

    Named and bounded as those of a span. Raises as `read_span` does.
    """
    held: list[UnitRows] = []
    tokens = number = start = 0
    for part in chain.from_iterable(read_span(span, columns, unit_tokens) for span in group.spans):
        size = sum(estimated_tokens(len(text.encode()), 1) for text in part.texts)
        if held and tokens + size > MOST * unit_tokens:
            stop = start + sum(one.read for one in held)
            yield _joined(group, f"{group.name}.{number}", (start, stop), held)
            held, tokens, number, start = [], 0, number + 1, stop
        held.append(part)
        tokens += size
    name = f"{group.name}.{number}" if number else group.name
    yield _joined(group, name, (start, None), held)


def _joined(
    group: GroupSpan, name: str, bounds: tuple[int, int | None], parts: list[UnitRows]
) -> UnitRows:
    kept = [part.kept for part in parts if part.kept is not None]
    return replace(
        parts[0],
        name=name,
        file=None,
        start=bounds[0],
        stop=bounds[1],
        ids=_all(part.ids for part in parts),
        texts=_all(part.texts for part in parts),
        positions=_all(part.positions for part in parts),
        kept=pa.concat_tables(kept) if kept else None,
        rejects=_all(part.rejects for part in parts),
        files=[part.relative for part in parts for _ in part.ids],
        prefixes=(
            _all(part.prefixes or [] for part in parts)
            if any(part.prefixes for part in parts)
            else None
        ),
        sources=tuple(span.file for span in group.spans),
    )


def _all(parts: Iterable[list[Item]]) -> list[Item]:
    return list(chain.from_iterable(parts))
