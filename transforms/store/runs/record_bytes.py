"""Records of units as bytes for the steps of a run: 215 to 250 a record; pickled it takes 600.

A step holds the records of a million units in memory. msgpack takes 496 bytes for the values of the
same record and 251 with the same knowledge of digests, names and runs (17 % more than this layout),
so the layout is our own:

- a number takes a byte for seven bits, a text its length and its bytes, half a byte for each hex
  digit;
- values that few records have take a bit each (`OPTIONAL`); a path takes its digest alone if the
  rest follows from the unit's name, and nothing if it is the digest of the shard;
- counts that are near to what others make them are written as the difference (`_expected`).
"""

import re
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from sentence_beam.transforms.base.measures import STAGES
from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.records import COUNTS, UnitRecord

FIGURES = tuple(figure.name for figure in STAGES["embed"])
SAME = ""  # the digest of rejects that is the shard's; a digest has sixteen digits
# Values that may be missing, in the order of their bits: first those that most records have.
OPTIONAL: dict[str, type] = {
    "part": str,
    "checksum": str,
    "shard": str,
    "sha256": str,
    "form": str,
    "rejects": str,
    "rejects_sha256": str,
    "blank": int,
    "of": str,
    "shard_path": str,
    "rejects_path": str,
    "pieces_sum": str,
    "documents_sum": str,
    "documents": int,
    "damaged": int,
    "moved": int,
    "fallbacks": int,
    "oom_splits": int,
    "unknown": int,
    "device": str,
    "forgotten": int,
}
_AS_THEY_ARE = (
    "checksum",
    "sha256",
    "form",
    "rejects_sha256",
    "pieces_sum",
    "documents_sum",
    "documents",
)
_MOSTLY_ZERO = ("blank", "fallbacks", "forgotten", "oom_splits", "unknown")
_NEAR_OTHERS = ("read", "embedded", "padded", "known")
_OTHER_COUNTS = tuple(
    name for name in COUNTS if name not in _MOSTLY_ZERO and name not in _NEAR_OTHERS
)
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_RUN = re.compile(r"([0-9]{8})T([0-9]{6})_([0-9]{3})Z-([0-9a-f]{6})")
_DOUBLE = struct.Struct("<d")
_SINGLE = struct.Struct("<f")


def pack(record: UnitRecord) -> bytes:
    """Return the record in bytes, without `worker`, which only sidecars have."""
    writer = _ByteWriter()
    of, place, part = _split_name(record.unit)
    writer.optional(_optional_values(record, of, part))
    writer.text(place)
    writer.text(record.file)
    writer.run(record.run)
    start, stop = record.range
    end = 0 if stop is None else 1 + stop
    writer.number(start)
    writer.number(end)
    counts = {name: getattr(record, name) for name in _OTHER_COUNTS}
    for value in counts.values():
        writer.number(value)
    for name, expected in _expected(counts).items():
        writer.difference(getattr(record, name) - expected)
    for path in record.damaged:
        writer.text(path)
    for figure in record.moved:
        writer.decimal(figure)
    writer.figures(record.measures)
    return bytes(writer.data)


def unpack(data: bytes) -> UnitRecord:
    """Return the record of bytes that `pack` made."""
    reader = _ByteReader(data)
    optional = reader.optional()
    place = reader.text() or ""
    file = reader.text() or ""
    run = reader.run()
    extent = _read_range(reader)
    counts = _read_counts(reader, optional)
    damaged = tuple(reader.text() or "" for _ in range(optional["damaged"] or 0))
    moved = tuple(reader.decimal() for _ in range(optional["moved"] or 0))
    of = key_of(file) if optional["of"] is None else optional["of"]
    unit = _join_name(of, place, optional["part"])
    path, rejects = _paths_of(optional, unit)
    return UnitRecord(
        path=path,
        unit=unit,
        file=file,
        range=extent,
        rejects=rejects,
        run=run,
        damaged=damaged,
        moved=moved,
        measures=reader.figures(),
        device=sys.intern(optional["device"] or ""),  # that of most units of a run
        **_values_as_they_are(optional),
        **counts,
    )


def _read_range(reader: "_ByteReader") -> tuple[int, int | None]:
    start = reader.number()
    end = reader.number()
    if not end:
        return start, None
    return start, end - 1


def _read_counts(reader: "_ByteReader", optional: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {name: reader.number() for name in _OTHER_COUNTS}
    counts |= {name: expected + reader.difference() for name, expected in _expected(counts).items()}
    return counts | {name: optional[name] or 0 for name in _MOSTLY_ZERO}


def _values_as_they_are(optional: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: optional[name] for name in _AS_THEY_ARE}
    if values["form"]:
        values["form"] = sys.intern(values["form"])  # that of all units of a run
    return values


def _paths_of(optional: Mapping[str, Any], unit: str) -> tuple[str | None, str | None]:
    """Return the paths of a unit's shard and reject file."""
    shard = optional["shard"]
    rejects = optional["rejects"]
    if rejects == SAME:
        rejects = shard
    return (
        _path_of(shard, optional["shard_path"], unit, layout.shard),
        _path_of(rejects, optional["rejects_path"], unit, layout.rejects),
    )


def _optional_values(record: UnitRecord, of: str, part: str | None) -> dict[str, Any]:
    """Return the values of `OPTIONAL`; None if missing, or if it follows from others."""
    follows = bool(record.file) and of == key_of(record.file)
    shard, shard_path = _digest_or_path(record.path, record.unit, layout.shard)
    rejects, rejects_path = _digest_or_path(record.rejects, record.unit, layout.rejects)
    if rejects and rejects == shard:
        rejects = SAME
    values = {name: getattr(record, name) for name in _AS_THEY_ARE}
    values |= {name: getattr(record, name) or None for name in _MOSTLY_ZERO}
    values |= {
        "of": None if follows else of,
        "part": part,
        "shard": shard,
        "shard_path": shard_path,
        "rejects": rejects,
        "rejects_path": rejects_path,
    }
    values |= {"damaged": len(record.damaged) or None, "moved": len(record.moved) or None}
    values["device"] = record.device or None
    return values


def _split_name(unit: str) -> tuple[str, str, str | None]:
    """Return the parts of a unit's name: file or group, place in it, part of the place."""
    of, _, place = unit.partition("-")
    place, dot, part = place.partition(".")
    if not dot:
        return of, place, None
    return of, place, part


def _join_name(of: str, place: str, part: str | None) -> str:
    if part is None:
        return f"{of}-{place}"
    return f"{of}-{place}.{part}"


def _expected(counts: Mapping[str, int]) -> dict[str, int]:
    """Return a number near to each of the counts `_NEAR_OTHERS`."""
    return {
        "read": counts["rows"] + counts["rejected"],
        "embedded": counts["rows"] - counts["reused"] - counts["duplicates"],
        "padded": counts["real"],
        "known": counts["real"],
    }


def _digest_or_path(
    path: str | None, unit: str, place: Callable[[str, str], str]
) -> tuple[str | None, str | None]:
    """Return the digest in a path, or the path if more than the digest is its own.

    The other is None.
    """
    if path is None:
        return None, None
    digest = layout.stem(path).rpartition("-")[2]
    if digest and place(unit, digest) == path:
        return digest, None
    return None, path


def _path_of(
    digest: str | None, path: str | None, unit: str, place: Callable[[str, str], str]
) -> str | None:
    """Return the path of a unit's file from the result of `_digest_or_path`."""
    return path if digest is None else place(unit, digest)


class _ByteWriter:
    """Bytes to which values are added; each method has its counterpart in `_ByteReader`."""

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        """Write seven bits a byte, the lowest first; the highest bit says that more follow."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def difference(self, value: int) -> None:
        """Write a number that may be negative: doubled, plus 1 if it is negative."""
        self.number(2 * abs(value) + (value < 0))

    def text(self, value: str | None) -> None:
        """Write the bytes after 1 + 2 x their number (+ 1 for hex digits); None is 0."""
        if value is None:
            self.number(0)
            return
        is_hex = _HEX.fullmatch(value) is not None
        if is_hex:
            data = bytes.fromhex(value)
        else:
            data = value.encode("utf-8", "surrogatepass")
        self.number(1 + 2 * len(data) + is_hex)
        self.data += data

    def optional(self, values: Mapping[str, Any]) -> None:
        """Write a number with a bit for each value of `OPTIONAL` that exists, then these."""
        present = [name for name in OPTIONAL if values[name] is not None]
        self.number(sum(1 << bit for bit, name in enumerate(OPTIONAL) if name in present))
        for name in present:
            if OPTIONAL[name] is int:
                self.number(values[name])
            else:
                self.text(values[name])

    def run(self, value: str) -> None:
        """Write the id of a run as 0 and two numbers in 11 bytes; any other name as text."""
        found = _RUN.fullmatch(value)
        if found is None:
            self.text(value)
            return
        self.number(0)
        self.data += int("".join(found.group(1, 2, 3))).to_bytes(8)
        self.data += bytes.fromhex(found[4])

    def decimal(self, value: float) -> None:
        """Write a number of six digits as 0 and four bytes, any other as 1 and eight."""
        value = float(value)
        if abs(value) < 1e30 and _six_digits(_SINGLE.pack(value)) == value:
            self.data.append(0)
            self.data += _SINGLE.pack(value)
        else:
            self.data.append(1)
            self.data += _DOUBLE.pack(value)

    def figures(self, values: Mapping[str, float]) -> None:
        """Write a bit for each existing one of `FIGURES`, other names, then all values."""
        known = [name for name in FIGURES if name in values]
        others = [name for name in values if name not in FIGURES]
        self.number(sum(1 << FIGURES.index(name) for name in known))
        self.number(len(others))
        for name in others:
            self.text(name)
        for name in (*known, *others):
            self.figure(values[name])

    def figure(self, value: float) -> None:
        """Write thousandths plus one; any other value as 0 and eight bytes."""
        thousandths = round(1000 * value) if 0 <= value < 1e12 else 0
        if thousandths / 1000 == value:
            self.number(1 + thousandths)
        else:
            self.data.append(0)
            self.data += _DOUBLE.pack(value)


class _ByteReader:
    """The values that a `_ByteWriter` was given, read in the same order."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def number(self) -> int:
        """Read an unsigned integer: 7 bits a byte, the lowest first."""
        value = shift = 0
        while (byte := self._data[self._at]) > 127:
            value |= (byte & 127) << shift
            shift += 7
            self._at += 1
        self._at += 1
        return value | byte << shift

    def difference(self) -> int:
        value, is_negative = divmod(self.number(), 2)
        return -value if is_negative else value

    def text(self) -> str | None:
        """Read a text, which is stored as bytes if it is hex; None for none."""
        head = self.number()
        if not head:
            return None
        length, is_hex = divmod(head - 1, 2)
        data = self._bytes(length)
        if is_hex:
            return data.hex()
        return data.decode("utf-8", "surrogatepass")

    def optional(self) -> dict[str, Any]:
        """Read the fields of OPTIONAL; those that were None have no bytes."""
        present = self.number()
        values: dict[str, Any] = {}
        for bit, (name, kind) in enumerate(OPTIONAL.items()):
            if not present >> bit & 1:
                values[name] = None
            elif kind is int:
                values[name] = self.number()
            else:
                values[name] = self.text()
        return values

    def run(self) -> str:
        text = self.text()
        if text is not None:
            return text
        started = f"{int.from_bytes(self._bytes(8)):017d}"
        return f"{started[:8]}T{started[8:14]}_{started[14:]}Z-{self._bytes(3).hex()}"

    def decimal(self) -> float:
        (is_double,) = self._bytes(1)
        if is_double:
            return float(_DOUBLE.unpack(self._bytes(8))[0])
        return _six_digits(self._bytes(4))

    def figures(self) -> dict[str, float]:
        present = self.number()
        others = self.number()
        names = [name for bit, name in enumerate(FIGURES) if present >> bit & 1]
        names += [self.text() or "" for _ in range(others)]
        return {name: self.figure() for name in names}

    def figure(self) -> float:
        thousandths = self.number()
        if thousandths:
            return (thousandths - 1) / 1000
        return float(_DOUBLE.unpack(self._bytes(8))[0])

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]


def _six_digits(data: bytes) -> float:
    """Return the number of at most six digits in four bytes."""
    return float(f"{_SINGLE.unpack(data)[0]:.6g}")
