"""Files as nobody should make them: bytes changed here and there, JSON with values that belong
elsewhere.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Json = Any
Change = Callable[[bytes], bytes]

VALUES: list[Json] = [
    None, True, -1, 0, 1, 2**63, 10**40, 1.5, 1e308, float("nan"), float("-inf"), "", "x", "a\nb", "\x00", "\ud800", "é" * 300,
    "..", "../../outside/secret.json", "/etc/passwd", "embeddings/../../outside/secret.json", "gs://bucket/x", "s3://b/x",
    "file:///etc/passwd", "C:\\x", "-", "~", [], [[]], [None], [-1, "x"], {}, {"": None}, {"path": "/etc/passwd"},
]  # fmt: skip


def _places(value: Json, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value within some JSON, the outermost first."""
    keys = (
        sorted(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    return [place, *(found for key in keys for found in _places(value[key], (*place, key)))]


def edited(value: Json, number: int, new: Json, how: str) -> Json:
    """The JSON with one of its values replaced, removed, repeated or called otherwise; `number`
    counts its places.
    """
    places = _places(value)
    place = places[number % len(places)]
    if not place:
        return new
    made = copy.deepcopy(value)
    parent = made
    for key in place[:-1]:
        parent = parent[key]
    if how == "replace":
        parent[place[-1]] = new
    elif how == "remove":
        del parent[place[-1]]
    elif isinstance(parent, list):
        parent.append(parent[place[-1]])
    else:
        parent[f"{place[-1]}s"] = parent.pop(place[-1])
    return made


json_changes: st.SearchStrategy[Callable[[Json], Json]] = st.builds(
    lambda number, new, how: lambda value: edited(value, number, new, how),
    st.integers(0, 10_000), st.sampled_from(VALUES), st.sampled_from(["replace", "replace", "remove", "rename"]),
)  # fmt: skip


def _at(data: bytes, place: float) -> int:
    return int(place * len(data))


def _flip(place: float, other: bytes) -> Change:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for i, byte in enumerate(other):
            if changed:
                changed[(_at(data, place) + i) % len(changed)] ^= byte
        return bytes(changed)

    return change


_places_in = st.floats(0, 1, exclude_max=True)
byte_changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(_flip, _places_in, st.binary(min_size=1, max_size=4)),
    # where footers are
    st.builds(_flip, st.floats(0.9, 1, exclude_max=True), st.binary(min_size=1, max_size=8)),
    st.builds(lambda place: lambda data: data[: _at(data, place)], _places_in),
    st.builds(lambda place: lambda data: data[_at(data, place) :], _places_in),
    st.builds(lambda place, new: lambda data: data[: _at(data, place)] + new + data[_at(data, place) :],
              _places_in, st.binary(max_size=20)),
    st.builds(lambda new: lambda data: new, st.binary(max_size=40)),
)  # fmt: skip


def as_bytes(change: Callable[[Json], Json]) -> Change:
    """A change of JSON as one of the file that holds it."""
    return lambda data: json.dumps(change(json.loads(data))).encode("utf-8", "surrogatepass")


changes_of_json_files = st.one_of(byte_changes, st.builds(as_bytes, json_changes))


CELLS: list[Any] = [
    None, -1, 0, 1, 99, 2**31 - 1, 2**62, float("nan"), "", "r1", "../outside/secret.json", "/etc/passwd", "gs://bucket/x", b"x" * 16,
]  # fmt: skip


def _cell(number: int, value: Any) -> Change:
    """A Parquet file with one value replaced by one of the same type, if there is any."""

    def change(data: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(data))
        if not table.num_rows:
            return data
        column, row = number % table.num_columns, number // 7 % table.num_rows
        values = table.column(column).to_pylist()
        values[row] = value
        field = table.schema.field(column)
        try:
            edited = pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return data
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(column, field, edited), sink)
        return bytes(sink.getvalue())

    return change


def _rows(number: int, twice: bool) -> Change:
    """A Parquet file with one row less, or with one twice."""

    def change(data: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(data))
        places = list(range(table.num_rows))
        if places:
            place = number % len(places)
            places[place : place + 1] = [place, place] if twice else []
        sink = pa.BufferOutputStream()
        pq.write_table(table.take(pa.array(places, pa.int64())), sink)
        return bytes(sink.getvalue())

    return change


table_changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(_cell, st.integers(0, 10_000), st.sampled_from(CELLS)),
    st.builds(_rows, st.integers(0, 10_000), st.booleans()),
)


def campaign(
    strategy: st.SearchStrategy[Any], check: Callable[[Any], object], cases: int, fixed: bool
) -> int:
    """Try so many cases, the same ones each time where `fixed`; the number of cases that were
    run.
    """
    count = 0

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=fixed,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case: Any) -> None:
        nonlocal count
        count += 1
        check(case)

    run()
    return count


def state(folder: Path) -> dict[str, str]:
    """sha256 of every file below a folder."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
