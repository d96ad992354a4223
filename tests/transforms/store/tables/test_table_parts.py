"""Parts of tables: where they are cut, which are kept, what is read of them, and damage."""

import hashlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import fake_storage
from helpers.examples import examples
from helpers.snapshots import small_parts, watch_parts
from helpers.unit_records import unit_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store.entries import TableEntry, TablePart
from sentence_beam.transforms.store.tables.table_columns import FILES, make_units_table
from sentence_beam.transforms.store.tables.table_parts import (
    PartWriter,
    read_in_turns,
    read_named_units,
    read_part,
    read_table,
    select_parts,
    write_table,
)

NOTHING = TableEntry()
ROWS = 4  # of a part, on average


@pytest.fixture(autouse=True)
def of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch, ROWS)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store without a snapshot."""
    return str(tmp_path / "store")


def names(count: int, start: int = 0) -> list[str]:
    """Names of units of so many files, sorted."""
    return sorted(f"{make_key(str(n))}-{0:012d}" for n in range(start, start + count))


def units(some: list[str], rows: int = 1) -> pa.Table:
    """Rows of `units` with these names."""
    return make_units_table(unit_record(rows, unit=name) for name in some)


def written(root: str, some: list[str], last: TableEntry = NOTHING) -> TableEntry:
    """The table of units with these names, in the store."""
    return write_table(root, "units", units(some), last)


def files_of(root: str) -> set[str]:
    """The paths of all parts in a store."""
    return {
        str(path.relative_to(root)) for path in Path(root, "manifests", "parts").glob("*.parquet")
    }


def expected_cuts(some: list[str]) -> list[list[str]]:
    """Names in parts, by the rule: a span whose hash says so begins one."""
    found: list[list[str]] = []
    before = ""
    for name in some:
        span = name.partition(".")[0]
        begins = xxh3_64_intdigest(span.encode()) % ROWS == 0 and span != before
        if begins or not found:
            found.append([])
        found[-1].append(name)
        before = span
    return found


def test_a_part_begins_where_the_hash_of_a_span_says_so(root: str) -> None:
    some = names(100)
    some = sorted([*some[::2], *(f"{name}.{n}" for name in some[1::2] for n in range(12))])
    table = written(root, some)
    cuts = expected_cuts(some)
    assert len(cuts) > 10
    found = [(part.rows, part.first, part.last) for part in table.parts]
    assert found == [(len(cut), cut[0], cut[-1]) for cut in cuts]
    assert table.rows == len(some)
    assert read_table(root, "units", table)["unit"].to_pylist() == some
    assert files_of(root) == {part.path for part in table.parts}
    for part, cut in zip(table.parts, cuts, strict=True):
        assert read_part(root, part)["unit"].to_pylist() == cut


def test_rows_in_pieces_give_the_same_parts(root: str) -> None:
    some = sorted([*names(40), *(f"{name}.{n}" for name in names(20, 40) for n in range(5))])
    whole = written(root, some)
    for size in (1, 2, 7, len(some)):
        writer = PartWriter(root, "units", NOTHING)
        for start in range(0, len(some), size):
            writer.add(units(some).slice(start, size))
        writer.add(units([]))
        assert writer.end() == whole


def test_a_table_without_rows_has_no_part(root: str) -> None:
    assert written(root, []) == NOTHING
    assert len(read_table(root, "units", NOTHING)) == 0
    assert read_table(root, "files", NOTHING).schema == FILES


histories = st.lists(
    st.tuples(st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.5])), min_size=1, max_size=5
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(histories)
def test_equal_rows_give_equal_parts_whatever_the_history(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, float]]
) -> None:
    """Turns without a change keep their parts; rows go, come and change in the others."""
    root = str(tmp_path_factory.mktemp("store"))
    values = dict.fromkeys(names(60), 1)
    last = write_table(root, "units", _rows(values), NOTHING)
    for seed, share in history:
        rng = random.Random(seed)
        values = _changed(rng, values, share, {part.first for part in last.parts})
        before = files_of(root)
        made = _by_turns(root, last, values)
        assert files_of(root) - before == {part.path for part in made.parts} - before
        fresh = f"{root}-fresh-{rng.random()}"
        assert made == write_table(fresh, "units", _rows(values), NOTHING)
        assert read_table(root, "units", made) == _rows(values)
        last = made


def _rows(values: dict[str, int]) -> pa.Table:
    return make_units_table(unit_record(rows, unit=name) for name, rows in values.items())


def _changed(
    rng: random.Random, values: dict[str, int], share: float, first: set[str]
) -> dict[str, int]:
    """Values without some names, with other ones, and with some that changed."""
    new = {}
    for name, rows in values.items():
        chance = rng.random()
        if chance < share / 3 or (share and name in first and chance < 0.3):
            continue
        new[name] = rows + (chance < share)
    new |= {name: 1 for name in names(30, 1000) if rng.random() < share / 4}
    return dict(sorted(new.items()))


def _by_turns(root: str, last: TableEntry, values: dict[str, int]) -> TableEntry:
    """Write values as a run does: turn by turn of the last table."""
    writer = PartWriter(root, "units", last)
    waiting = [*values.items()]
    for parts, rows in read_in_turns(root, last):
        end = parts[-1].last if parts[-1] is not last.parts[-1] else "~"
        here = dict(item for item in waiting if item[0] <= end)
        waiting = [item for item in waiting if item[0] > end]
        if rows == _rows(here):
            writer.keep(parts, rows)
        else:
            writer.add(_rows(here))
    writer.add(_rows(dict(waiting)))
    return writer.end()


def test_an_edit_writes_the_parts_that_it_lies_in_alone(root: str) -> None:
    values = dict.fromkeys(names(200), 1)
    last = write_table(root, "units", _rows(values), NOTHING)
    for place in (0, 57, 199):
        edited = values | {[*values][place]: 2}
        made = write_table(root, "units", _rows(edited), last)
        new = [part for part in made.parts if part not in last.parts]
        assert len(new) == 1
        assert new[0].first <= [*values][place] <= new[0].last
        assert _by_turns(root, last, edited) == made


def test_what_the_last_snapshot_has_is_not_written_again(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = written(root, names(60))
    asked = fake_storage.note(monkeypatch, "put_if_absent", "replace_if")
    assert written(root, names(60), last) == last
    writer = PartWriter(root, "units", last)
    writer.add(units(names(60)))
    writer.end()
    assert writer.written == 0
    assert not [path for _, path in asked if "parts" in path]
    other = PartWriter(root, "units", NOTHING)
    other.add(units(names(60)))
    other.end()
    assert other.written > 0


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_kept_part_goes_on_if_the_row_that_ended_it_is_gone(root: str, gone: int) -> None:
    """The row that begins a part is what ends the one before."""
    some = names(60)
    last = written(root, some)
    for part in last.parts[1:]:
        at = some.index(part.first)
        left = some[:at] + some[at + gone :]
        values = dict.fromkeys(left, 1)
        assert _by_turns(root, last, values) == written(f"{root}-{at}-{gone}", left)


def test_some_parts_are_read_together_and_all_once(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(root, names(100))
    read = watch_parts(monkeypatch)
    turns = list(read_in_turns(root, table, ["unit", "rows"]))
    assert sorted(read) == sorted(part.path for part in table.parts)
    assert [part for parts, _ in turns for part in parts] == list(table.parts)
    assert all(len(rows) <= 3 * ROWS or len(parts) == 1 for parts, rows in turns)
    assert 1 < len(turns) < len(table.parts)
    assert all(rows.column_names == ["unit", "rows"] for _, rows in turns)
    assert pa.concat_tables([rows for _, rows in turns])["unit"].to_pylist() == names(100)


def test_units_are_found_by_name_in_the_parts_that_can_have_them(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [make_key(str(n)) for n in range(40)]
    some = sorted(
        [f"{key}-{span:012d}" for key in keys for span in range(2)]
        + [f"{key}-{2:012d}.{piece}" for key in keys for piece in range(3)]
        + ["f6-0a", "f6-0a1.0", "f6-0b.0", "f6-0b.1", "3-1", "3-10.0"]
    )
    table = written(root, some)
    wanted = [*keys, *(f"{keys[3]}-{span:012d}" for span in range(4)), *some]
    wanted += ["f6-0", "f6-0a", "f6-0b", "3-1", "3-", "0", "z", make_key("another")]
    for name in wanted:
        read = watch_parts(monkeypatch)
        found = read_named_units(root, table, name)["unit"].to_pylist()
        continued = (name, f"{name}-", f"{name}.")
        assert found == [unit for unit in some if unit == name or unit.startswith(continued[1:])]
        monkeypatch.undo()
        small_parts(monkeypatch, ROWS)
        assert len(read) <= 3
    assert read_named_units(root, NOTHING, keys[0]).num_rows == 0


def test_parts_that_may_have_units_of_some_files(root: str) -> None:
    some = names(100)
    table = written(root, some)
    for chosen in ([], [3], [0, 99], [10, 11, 12, 60]):
        keys = np.array(sorted(some[place][:16] for place in chosen), "U16")
        found = select_parts(table, keys)
        wanted = [
            part for part in table.parts if any(part.first[:16] <= key <= part.last for key in keys)
        ]
        assert list(found.parts) == wanted
        assert found.rows == sum(part.rows for part in wanted)
        rows = read_table(root, "units", found)["unit"].to_pylist()
        assert {some[place] for place in chosen} <= {*rows}


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("damage", [_cut_short, _flip, _empty])
def test_a_changed_part_is_one_line(root: str, damage: Any, place: int) -> None:
    table = written(root, names(60))
    path = Path(root, table.parts[place].path)
    damage(path)
    said = (
        f"{path} is not the part that the manifest names (sha256 differs); restore it, or roll back"
    )
    check_refused(root, table, place, said)


@pytest.mark.parametrize("place", [0, -1])
def test_a_missing_part_is_one_line(root: str, place: int) -> None:
    table = written(root, names(60))
    path = Path(root, table.parts[place].path)
    path.unlink()
    said = f"{path} is missing, a part of the manifest; restore it, or roll back"
    check_refused(root, table, place, said)


def check_refused(root: str, table: TableEntry, place: int, said: str) -> None:
    """All that reads a part says this."""
    readers: list[Any] = [
        lambda: read_part(root, table.parts[place]),
        lambda: read_table(root, "units", table, ["unit"]),
        lambda: list(read_in_turns(root, table)),
        lambda: read_named_units(root, table, table.parts[place].first),
    ]
    for read in readers:
        with pytest.raises(SentenceBeamError) as raised:
            read()
        assert str(raised.value) == said


def planted(root: str, rows: pa.Table) -> TableEntry:
    """A table whose one part has any rows, named by their bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    return planted_bytes(root, data, len(rows))


def planted_bytes(root: str, data: bytes, rows: int = 1) -> TableEntry:
    """A table whose one part has any bytes."""
    sha256 = hashlib.sha256(data).hexdigest()
    part = TablePart(f"manifests/parts/{sha256}.parquet", sha256, rows, "0", "z")
    path = Path(root, part.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return TableEntry(rows, (part,))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet"])
def test_bytes_that_are_no_table_are_one_line(root: str, data: bytes) -> None:
    table = planted_bytes(root, data)
    with pytest.raises(SentenceBeamError, match="is no part of a manifest") as raised:
        read_table(root, "units", table)
    assert "\n" not in str(raised.value)
    assert "restore it, or roll back" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("path", "embeddings/../../x.parquet"),
        ("path", "/etc/passwd"),
        ("path", "rejects/0-0-0000000000000000.parquet"),
        ("rejects", "s3://x/y.parquet"),
        ("rejects", "../x"),
    ],
)
def test_a_path_that_leaves_the_store_is_one_line(root: str, name: str, path: str) -> None:
    rows = units(names(3))
    at = rows.schema.get_field_index(name)
    column = pa.array([None, path, None], pa.string())
    table = planted(root, rows.set_column(at, rows.schema.field(name), column))
    for columns in (None, [name], [name, "unit"], ["bytes", name]):
        with pytest.raises(SentenceBeamError) as raised:
            read_table(root, "units", table, columns)
        assert f"{path!r} is no path of this store's" in str(raised.value)
        assert "\n" not in str(raised.value)


def test_an_input_file_may_have_any_path(root: str) -> None:
    row: dict[str, Any] = dict.fromkeys(FILES.names, 0)
    row |= dict.fromkeys(("folder", "source", "group", "cut", "shards_of"))
    row |= {"path": "../x.txt", "format": "text", "checksum": "", "version": ""}
    table = write_table(root, "files", pa.Table.from_pylist([row], FILES), NOTHING)
    for columns in (None, ["path"]):
        assert read_table(root, "files", table, columns)["path"].to_pylist() == ["../x.txt"]
