"""Stretches: the names of units cut into 64 parts, so that no process holds all units.

A unit's place is the hash of its file, or the number of its group or bucket: all units of a file,
and all of a bucket, are in one stretch.
"""

from transforms.corpus.buckets import parse_name
from transforms.corpus.files import key_of
from transforms.corpus.groups import bits_of

STRETCHES = 64


def stretch_of(unit: str) -> int:
    """Return the stretch of a unit, or of the units of a span.

    >>> stretch_of("ff23456789abcdef-000000000000.2"), stretch_of("f3-7")
    (63, 56)
    >>> stretch_of("10-200"), stretch_of("0-0")
    (32, 0)
    """
    bucket = parse_name(unit)
    bits = bits_of(unit) if bucket is None else bucket.bits
    if bits is None:
        return int(unit.partition("-")[0][:2], 16) >> 2
    if bucket is None:
        number = int(unit.partition("-")[2].partition(".")[0], 16)
    else:
        number = bucket.number
    return min(number * STRETCHES >> bits, STRETCHES - 1)


def stretch_of_file(relative: str) -> int:
    """Return the stretch of an input file, which is that of its own units."""
    return stretch_of(key_of(relative))


def buckets_in(stretch: int, bits: int) -> range:
    """Return the numbers of those of 2**`bits` buckets that are in a stretch.

    >>> buckets_in(0, 1), buckets_in(32, 1), buckets_in(33, 1), buckets_in(63, 7)
    (range(0, 1), range(1, 2), range(2, 2), range(126, 128))
    """
    first, after = (-(-(place << bits) // STRETCHES) for place in (stretch, stretch + 1))
    return range(first, after)
