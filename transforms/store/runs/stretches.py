"""Stretches: the names of units cut into 64 parts, so that no process holds all units.

A unit's place is the hash of its file, or the number of its group or bucket: all units of a file,
and all of a bucket, are in one stretch.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.corpus.buckets import parse_name
from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.corpus.groups import bits_of

STRETCHES = 64
KEY_DIGITS = 16  # in the key of a file, with which names of its units begin


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


def stretches_of(units: pa.ChunkedArray) -> np.ndarray:
    """Return the stretch of each unit or span, int8 [n].

    >>> names = ["ff23456789abcdef-000000000000.2", "0123456789abcdef-000000000000"]
    >>> stretches_of(pa.chunked_array([names, ["f3-7"]]))
    array([63,  0, 56], dtype=int8)
    """
    found = [np.empty(0, np.int8), *map(_stretches_of, units.chunks)]
    return np.concatenate(found)


def _stretches_of(units: pa.StringArray) -> np.ndarray:
    """Return the stretches of one chunk; one by one if not all units are of single files."""
    is_own = pc.equal(pc.utf8_slice_codeunits(units, KEY_DIGITS, KEY_DIGITS + 1), "-")
    if not pc.all(is_own).as_py():
        return np.fromiter(map(stretch_of, units.to_pylist()), np.int8, len(units))
    heads = pc.utf8_slice_codeunits(units, 0, 2).dictionary_encode()
    stretches = [int(head, 16) >> 2 for head in heads.dictionary.to_pylist()]
    return np.array(stretches, np.int8)[heads.indices.to_numpy()]


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
