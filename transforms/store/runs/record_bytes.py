"""Records of units in few bytes, as they travel between the steps of a run: about 215, where pickled they take 600."""

import re
import struct
import sys
from collections.abc import Callable
from typing import Any

from transforms.base.measures import STAGES
from transforms.corpus.files import key_of
from transforms.store import layout
from transforms.store.records import COUNTS, UnitRecord

_SAME = ("", None)  # for a digest, which has sixteen digits: that of the shard
_SELDOM = ("blank", "fallbacks", "oom_splits", "unknown")  # counts that are 0 in most records
_IMPLIED = ("read", "embedded", "padded", "known")  # counts that are near to what others make them
_OFTEN = tuple(name for name in COUNTS if name not in _SELDOM and name not in _IMPLIED)
_PRESENT, _NUMBERS = 19, (7, 13, 14, 15, 16, 17, 18)  # values that may be missing, and which of them are numbers
FIGURES = tuple(figure.name for figure in STAGES["embed"])
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_RUN = re.compile(r"([0-9]{8})T([0-9]{6})_([0-9]{3})Z-([0-9a-f]{6})")
_DOUBLE, _SINGLE = struct.Struct("<d"), struct.Struct("<f")


def pack(record: UnitRecord) -> bytes:
    """The record in bytes, without `worker`, which is told by sidecars alone.

    The first number has a bit for each value that may be missing, the lowest for those that most records have. Numbers
    take a byte for seven bits, hex digits half a byte each, the id of a run 11 bytes; paths that follow from the unit's
    name and a digest take what the digest does, the second of two with one digest nothing.
    """
    out = bytearray()
    of, _, place = record.unit.partition("-")
    place, dot, part = place.partition(".")
    follows = bool(record.file) and of == key_of(record.file)
    shard, rejects = _path(record.path, record.unit, layout.shard), _path(record.rejects, record.unit, layout.rejects)
    if rejects[0] and rejects == shard:
        rejects = _SAME
    blank, *others = (getattr(record, name) or None for name in _SELDOM)
    often = [part if dot else None, record.checksum, shard[0], record.sha256, record.form, rejects[0]]
    often += [record.rejects_sha256, blank]
    seldom = [None if follows else of, shard[1], rejects[1], record.pieces_sum, record.documents_sum, record.documents]
    seldom += [len(record.damaged) or None, len(record.moved) or None, *others]
    _put_present(out, [*often, *seldom])
    _put_texts(out, place, record.file)
    _put_run(out, record.run)
    start, stop = record.range
    _put_numbers(out, start, 0 if stop is None else 1 + stop)
    counts = {name: getattr(record, name) for name in _OFTEN}
    _put_numbers(out, *counts.values())
    for name, near in _near(counts).items():
        _put_difference(out, getattr(record, name) - near)
    _put_texts(out, *record.damaged)
    for value in record.moved:
        _put_float(out, value)
    _put_figures(out, record.measures)
    return bytes(out)


def unpack(data: bytes) -> UnitRecord:
    """The record that `pack` was given."""
    found = _Unpacker(data)
    part, checksum, shard, sha256, form, rejects, rejects_sha256, blank, *seldom = found.present()
    of, shard_path, rejects_path, pieces_sum, documents_sum, documents, damaged, moved, *others = seldom
    place, file = found.text() or "", found.text() or ""
    run = found.run()
    start, stop = found.number(), found.number()
    name = f"{key_of(file) if of is None else of}-{place}" + ("" if part is None else f".{part}")
    counts: dict[str, Any] = {count: found.number() for count in _OFTEN}
    counts |= {count: near + found.difference() for count, near in _near(counts).items()}
    counts |= {count: number or 0 for count, number in zip(_SELDOM, (blank, *others), strict=True)}
    return UnitRecord(
        path=_unpath((shard, shard_path), name, layout.shard),
        unit=name,
        file=file,
        range=(start, stop - 1 if stop else None),
        rejects=_unpath((shard if rejects == "" else rejects, rejects_path), name, layout.rejects),
        sha256=sha256,
        run=run,
        rejects_sha256=rejects_sha256,
        checksum=checksum,
        documents=documents,
        pieces_sum=pieces_sum,
        documents_sum=documents_sum,
        form=sys.intern(form) if form else form,
        damaged=tuple(found.text() or "" for _ in range(damaged or 0)),
        moved=tuple(found.decimal() for _ in range(moved or 0)),
        measures=found.figures(),
        **counts,
    )


def _near(counts: dict[str, int]) -> dict[str, int]:
    """Of each of the implied counts, a number near to it."""
    read = counts["rows"] + counts["rejected"]
    embedded = counts["rows"] - counts["reused"] - counts["duplicates"]
    return dict(zip(_IMPLIED, (read, embedded, counts["real"], counts["real"]), strict=True))


def _path(path: str | None, unit: str, place: Callable[[str, str], str]) -> tuple[str | None, str | None]:
    """The digest by which the path of a unit's file follows from its name, or the path itself; None for the other."""
    if path is None:
        return None, None
    digest = layout.stem(path).rpartition("-")[2]
    return (digest, None) if digest and place(unit, digest) == path else (None, path)


def _unpath(put: tuple[str | None, str | None], unit: str, place: Callable[[str, str], str]) -> str | None:
    digest, path = put
    return place(unit, digest) if digest is not None else path


def _put_present(out: bytearray, values: list[Any]) -> None:
    """A number with a bit for each value, set for those that are there, and these."""
    _put_numbers(out, sum(1 << at for at, value in enumerate(values) if value is not None))
    for at, value in enumerate(values):
        if value is not None:
            put: Callable[..., None] = _put_numbers if at in _NUMBERS else _put_texts
            put(out, value)


def _put_numbers(out: bytearray, *numbers: int) -> None:
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)


def _put_difference(out: bytearray, value: int) -> None:
    """A number that may be negative, doubled, with 1 if it is."""
    _put_numbers(out, 2 * abs(value) + (value < 0))


def _put_texts(out: bytearray, *texts: str | None) -> None:
    """Each text after its length in bytes, doubled, with 1 for hex digits; None as 0 and all others one higher."""
    for text in texts:
        if text is None:
            out.append(0)
            continue
        is_hex = _HEX.fullmatch(text) is not None
        data = bytes.fromhex(text) if is_hex else text.encode("utf-8", "surrogatepass")
        _put_numbers(out, 1 + 2 * len(data) + is_hex)
        out += data


def _put_run(out: bytearray, run: str) -> None:
    """The id of a run as two numbers; any other name as text."""
    found = _RUN.fullmatch(run)
    if found is None:
        _put_texts(out, run)
    else:
        out.append(0)
        out += int("".join(found.group(1, 2, 3))).to_bytes(8) + bytes.fromhex(found[4])


def _put_float(out: bytearray, value: float) -> None:
    """A number of six digits in four bytes, which give it back, or any in eight; a byte before says which."""
    value = float(value)
    if abs(value) < 1e30 and float(f"{_SINGLE.unpack(_SINGLE.pack(value))[0]:.6g}") == value:
        out.append(0)
        out += _SINGLE.pack(value)
    else:
        out.append(1)
        out += _DOUBLE.pack(value)


def _put_figures(out: bytearray, figures: dict[str, float]) -> None:
    """Which of the figures that are known there are, a bit each, and their values; then the others with their names."""
    known = [name for name in FIGURES if name in figures]
    others = [name for name in figures if name not in FIGURES]
    _put_numbers(out, sum(1 << FIGURES.index(name) for name in known), len(others))
    _put_texts(out, *others)
    for name in (*known, *others):
        _put_figure(out, figures[name])


def _put_figure(out: bytearray, value: float) -> None:
    """Thousandths as a whole number, one higher; any other value as it is after a 0."""
    thousandths = round(1000 * value) if 0 <= value < 1e12 else 0
    if thousandths / 1000 == value:
        _put_numbers(out, 1 + thousandths)
    else:
        out.append(0)
        out += _DOUBLE.pack(value)


class _Unpacker:
    """What was put into bytes, read in the same order."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def number(self) -> int:
        value = shift = 0
        while (byte := self._data[self._at]) > 127:
            value |= (byte & 127) << shift
            shift += 7
            self._at += 1
        self._at += 1
        return value | byte << shift

    def difference(self) -> int:
        """The next number that may be negative."""
        value, is_negative = divmod(self.number(), 2)
        return -value if is_negative else value

    def present(self) -> list[Any]:
        there = self.number()
        return [self._value(at) if there >> at & 1 else None for at in range(_PRESENT)]

    def _value(self, at: int) -> Any:
        return self.number() if at in _NUMBERS else self.text()

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
        return float(f"{_SINGLE.unpack(self._bytes(4))[0]:.6g}")

    def figures(self) -> dict[str, float]:
        there, others = self.number(), self.number()
        names = [name for place, name in enumerate(FIGURES) if there >> place & 1]
        names += [self.text() or "" for _ in range(others)]
        return {name: self._figure() for name in names}

    def _figure(self) -> float:
        number = self.number()
        return (number - 1) / 1000 if number else float(_DOUBLE.unpack(self._bytes(8))[0])

    def text(self) -> str | None:
        head = self.number()
        if not head:
            return None
        data = self._bytes((head - 1) // 2)
        return data.hex() if (head - 1) % 2 else data.decode("utf-8", "surrogatepass")

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]
