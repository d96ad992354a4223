"""Groups of small files that share units, so that thousands of tiny files make few shards.

A file's group is the first bits of the hash of its relative path: a new or changed file touches one
group.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.rows import UnitRows, read_span
from sentence_beam.transforms.corpus.spans import (
    BYTES_PER_TOKEN,
    MOST,
    PACKS,
    TEXT_BYTES_PER_TOKEN,
    Span,
    estimate_tokens,
)

SMALL = 16  # so many small files make a unit at most; fewer are no reason to group them
GROWTH = 4  # times the tokens for which the number of groups was chosen
Item = TypeVar("Item")
NAME = re.compile(r"f(\d{1,2})-([0-9a-f]+)(?:\.\d+)?")


@dataclass(frozen=True)
class GroupSpan:
    """Spans of small files, read in turn into the units of a group; rows count from 0."""

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
        """The rows of all files; None if a file's rows are not known."""
        counts = [span.rows for span in self.spans]
        return None if None in counts else sum(filter(None, counts))

    @property
    def tokens(self) -> int:
        """The estimated tokens of all files."""
        return sum(span.tokens for span in self.spans)


AnySpan = Span | GroupSpan


def list_spans(span: AnySpan) -> tuple[Span, ...]:
    """Return the spans of single files in a span."""
    return span.spans if isinstance(span, GroupSpan) else (span,)


def estimate_tokens_by_size(sizes: np.ndarray, is_plain: np.ndarray) -> np.ndarray:
    """Return the estimated tokens of files by their sizes in bytes, int64 [n].

    `is_plain` bool [n]: text in lines, not compressed.
    """
    return np.where(is_plain, sizes // TEXT_BYTES_PER_TOKEN, PACKS * sizes // BYTES_PER_TOKEN)


def choose_bits(files: int, tokens: int, unit_tokens: int, bits: int | None) -> int | None:
    """Choose the bits of group numbers for small files, which have `tokens` together.

    They are the known ones, unless groups have become large; None for fewer than `SMALL` files.

    >>> choose_bits(100, 100_000, 20_000, None), choose_bits(15, 15_000, 20_000, None)
    (3, None)
    >>> choose_bits(100, 100_000, 20_000, 1)
    1
    """
    units = tokens / unit_tokens
    if bits is not None and units <= GROWTH << bits:
        return bits
    if bits is None and files < SMALL:
        return None
    return max(bits or 0, max(0, int(units + 0.999_999) - 1).bit_length())


def name_group(key: int, bits: int) -> str:
    """Return the name of a file's group, and of the group's units, by the file's key as a number.

    >>> group_of_key(0xF8E9_0000_0000_0000, 0), group_of_key(0xF8E9_0000_0000_0000, 5)
    ('f0-0', 'f5-1f')
    """
    return f"f{bits}-{key >> (64 - bits):0{max(1, -(-bits // 4))}x}"


def parse_bits(unit: str) -> int | None:
    """Return the bits of a unit's group; None for other units.

    >>> bits_of("f6-0a.3"), bits_of("6-0a"), bits_of("f123456789abcdef-000000000000")
    (6, None, None)
    """
    match = NAME.fullmatch(unit)
    return int(match[1]) if match is not None else None


def read_group(group: GroupSpan, columns: Columns, unit_tokens: int) -> Iterator[UnitRows]:
    """Yield the group's units in order; at least one, which may be empty.

    Names and bounds are as those of a span. Raises as `read_span` does.
    """
    waiting: list[UnitRows] = []
    tokens = 0
    number = 0
    start = 0
    for part in chain.from_iterable(read_span(span, columns, unit_tokens) for span in group.spans):
        size = sum(estimate_tokens(len(text.encode()), 1) for text in part.texts)
        if waiting and tokens + size > MOST * unit_tokens:
            stop = start + sum(held.read for held in waiting)
            yield _join(group, f"{group.name}.{number}", (start, stop), waiting)
            waiting = []
            tokens = 0
            number += 1
            start = stop
        waiting.append(part)
        tokens += size
    name = f"{group.name}.{number}" if number else group.name
    yield _join(group, name, (start, None), waiting)


def _join(
    group: GroupSpan, name: str, bounds: tuple[int, int | None], parts: list[UnitRows]
) -> UnitRows:
    tables = [part.kept for part in parts if part.kept is not None]
    return replace(
        parts[0],
        name=name,
        file=None,
        start=bounds[0],
        stop=bounds[1],
        ids=_chain(part.ids for part in parts),
        texts=_chain(part.texts for part in parts),
        positions=_chain(part.positions for part in parts),
        kept=pa.concat_tables(tables) if tables else None,
        rejects=_chain(part.rejects for part in parts),
        files=[part.relative for part in parts for _ in part.ids],
        prefixes=_join_prefixes(parts),
        sources=tuple(span.file for span in group.spans),
    )


def _join_prefixes(parts: list[UnitRows]) -> list[tuple[str, ...]] | None:
    if not any(part.prefixes for part in parts):
        return None
    return _chain(part.prefixes or [] for part in parts)


def _chain(parts: Iterable[list[Item]]) -> list[Item]:
    return list(chain.from_iterable(parts))
