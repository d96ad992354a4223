"""Names of units in columns: the keys of files, spans, buckets and stretches in them."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import as_mask, make_string_array
from sentence_beam.transforms.base.columns import as_numbers, as_whole, look_up, rank_equals

AFTER = "\x7f"  # comes after every character of a unit's name
STRETCHES = 64  # parts of the units of a run, so that no process gets all of them at once
KEY_DIGITS = 16  # in the key of a file, with which the names of its units begin
ROWS_AT_ONCE = 100_000
_DASH = 99
_HEX = np.full(256, 98, np.uint8)
_HEX[[ord(digit) for digit in "0123456789abcdef-"]] = [*range(16), _DASH]
_BUCKET = r"^(?P<bits>\d{1,2})-(?P<bucket>[0-9a-f]{1,8})(?:\.(?P<piece>\d+))?$"


def hash_files(paths: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return the keys of files as numbers, uint64 [n]."""
    keys = np.empty(len(paths), np.uint64)
    for start in range(0, len(paths), ROWS_AT_ONCE):  # an object of Python takes 0.2 kB
        some = paths.slice(start, ROWS_AT_ONCE).cast(pa.binary()).to_pylist()
        first = (int.from_bytes(hashlib.sha256(path).digest()[:8]) for path in some)
        keys[start : start + len(some)] = np.fromiter(first, np.uint64, len(some))
    return keys


def format_keys(paths: pa.ChunkedArray | pa.Array) -> pa.StringArray:
    """Return the keys of files as the names of their units have them."""
    keys = hash_files(paths)
    texts = [make_string_array([])]
    for start in range(0, len(keys), ROWS_AT_ONCE):
        some = keys[start : start + ROWS_AT_ONCE].tolist()
        texts.append(make_string_array([f"{key:0{KEY_DIGITS}x}" for key in some]))
    return pa.concat_arrays(texts)


def parse_unit_keys(names: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the key of the file in the name of each unit, and whether it has one.

    uint64 [n] and bool [n]: groups and buckets are of no single file.
    """
    data = np.frombuffer(names.buffers()[2] or b"", np.uint8)
    data = np.append(data, np.zeros(KEY_DIGITS + 1, np.uint8))
    offsets = np.frombuffer(names.buffers()[1] or b"", np.int32)
    starts = offsets[names.offset : names.offset + len(names)]
    digits = _HEX[data[starts[:, None] + np.arange(KEY_DIGITS + 1)]]
    octets = (digits[:, 0:KEY_DIGITS:2] << 4 | digits[:, 1:KEY_DIGITS:2]).astype(np.uint8)
    is_own = (digits[:, :KEY_DIGITS] < 16).all(axis=1) & (digits[:, KEY_DIGITS] == _DASH)
    return octets.view(">u8")[:, 0].astype(np.uint64), is_own


def get_spans(names: pa.StringArray) -> pa.StringArray:
    """Return the names of the spans of units: their names up to the dot."""
    if not pc.any(pc.match_substring(names, "."), min_count=0).as_py():
        return names
    return pc.replace_substring_regex(names, r"\..*", "")


def parse_buckets(names: pa.StringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bits, bucket and piece of units, int64 [n] each.

    The bits are -1 for a unit that is no bucket, the piece is -1 for a whole bucket.
    """
    parts = pc.extract_regex(names, _BUCKET)
    places = np.flatnonzero(as_mask(parts.is_valid()))
    parts = parts.take(pa.array(places))
    bits, bucket, piece = (np.full(len(names), none, np.int64) for none in (-1, 0, -1))
    bits[places] = [int(text) for text in parts.field(0).to_pylist()]
    bucket[places] = [int(text, 16) for text in parts.field(1).to_pylist()]
    piece[places] = [int(text or -1) for text in parts.field(2).to_pylist()]
    return bits, bucket, piece


def find_stretches(names: pa.StringArray) -> np.ndarray:
    """Return the stretch of each unit or span, int64 [n], in the order of their names.

    Buckets go by their number, because the names of all begin alike; others by two letters.

    >>> names = ["ff23456789abcdef-000000000000.2", "0123456789abcdef-000000000000", "f3-7"]
    >>> stretches_of(pa.array(names)).tolist()
    [63, 0, 60]
    >>> stretches_of(pa.array(["10-200", "0-0", "1-1"])).tolist()
    [32, 0, 32]
    """
    if not len(names):
        return np.empty(0, np.int64)
    bits, bucket, _ = parse_buckets(names)
    heads = pc.utf8_slice_codeunits(names, 0, 2).dictionary_encode()
    of_head = [
        int(head.rstrip("-").ljust(2, "0"), 16) >> 2 for head in heads.dictionary.to_pylist()
    ]
    by_head = np.array(of_head, np.int64)[as_numbers(heads.indices)]
    return np.where(bits < 0, by_head, bucket * STRETCHES >> np.maximum(bits, 0))


def find_stretch(unit: str) -> int:
    """Return the stretch of one unit."""
    return int(find_stretches(make_string_array([unit]))[0])


def list_buckets(first: int, after: int, bits: int) -> range:
    """Return the numbers of those of 2**`bits` buckets in stretches from `first` to before `after`.

    >>> buckets_in(0, 1, 1), buckets_in(32, 33, 1), buckets_in(33, 34, 1), buckets_in(63, 64, 7)
    (range(0, 1), range(1, 2), range(2, 2), range(126, 128))
    """
    return range(*(-(-(place << bits) // STRETCHES) for place in (first, after)))


class Owners:
    """The files of a table that have units, by the names of these."""

    def __init__(self, paths: pa.ChunkedArray | pa.Array, groups: pa.ChunkedArray | pa.Array):
        """Take the paths of files, sorted, and the groups that have their rows (null: none)."""
        groups = as_whole(groups)
        is_grouped = as_numbers(groups.is_valid())
        keys = hash_files(paths)
        alone = np.flatnonzero(~is_grouped)
        self._places = alone[np.argsort(keys[alone])]
        self._keys = keys[self._places]
        there = np.flatnonzero(is_grouped)
        named = groups.filter(groups.is_valid())
        is_first = rank_equals(look_up(named, named)) == 0
        self._first = there[is_first]
        self._groups = groups.take(pa.array(self._first, pa.int64()))

    def of(self, names: pa.StringArray) -> np.ndarray:
        """Return the place of the file that has each unit, int64 [n].

        For a unit of a group it is the first of its files; -1 if no file has the unit.
        """
        key, has_key = parse_unit_keys(names)
        at = np.searchsorted(self._keys, key)
        has_key &= np.append(self._keys, np.uint64(0))[at] == key
        has_key &= at < len(self._keys)
        owners = np.where(has_key, np.append(self._places, -1)[at], -1)
        if len(self._groups):
            group = look_up(get_spans(names), self._groups)
            owners = np.where(group >= 0, self._first[group], owners)
        return owners
