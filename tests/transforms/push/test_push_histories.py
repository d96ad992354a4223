"""Whatever happened before, and wherever a push was stopped: the next one leaves the database equal to the store."""

import random
import tempfile
from pathlib import Path

import pytest
from helpers.pushes import Kept, Memory, StoppedError, check, expected, files_of, in_memory
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.errors import DataGateError, OptionError
from transforms.push import push

TEXTS = ["apple", "bird", "cat", ""]
Night = dict[str, str]
NIGHT = st.dictionaries(st.sampled_from([f"i{n}" for n in range(6)]), st.sampled_from(TEXTS))


@settings(max_examples=12)
@given(st.lists(st.tuples(NIGHT, st.integers(0, 9), st.booleans()), min_size=1, max_size=5), NIGHT)
def test_a_stopped_push_is_made_good(nights: list[tuple[Night, int, bool]], last: Night) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        store, database = Kept(Path(folder) / "store"), Memory()
        for texts, writes, full in nights:
            store.commit_without_index(files_of(texts, 2))
            database.writes_left = writes
            try:
                push(store.manifest, database, full=full)
            except StoppedError:
                continue
            check(database.held(), expected(files_of(texts)))
        store.commit_without_index(files_of(last, 2))
        database.writes_left = 1 << 30
        push(store.manifest, database)
        check(database.held(), expected(files_of(last)))
        before = database.writes_left
        assert push(store.manifest, database).changes.added == 0
        assert database.writes_left == before


def test_only_what_changed_is_written(store: Kept) -> None:
    database, texts = Memory(), {f"i{n}": f"text {n}" for n in range(9)}
    done = push(store.manifest, database)
    assert (done.held, done.changes.added, done.rows) == (None, 9, 9)
    del texts["i3"]
    store.commit_without_index(files_of(texts | {"i4": "other", "i20": "new"}))
    writes = database.writes_left
    done = push(store.manifest, database)
    assert (done.held, done.changes.added, done.changes.changed, done.changes.deleted) == ("run1", 1, 1, 1)
    assert writes - database.writes_left == 3 + 2  # and the state, before and after
    check(database.held(), expected(files_of(texts | {"i4": "other", "i20": "new"})))


def test_a_dry_run_counts_and_writes_nothing(store: Kept) -> None:
    database = Memory(writes_left=0)
    done = push(store.manifest, database, dry_run=True)
    assert (done.changes.added, database.rows, database.kept) == (9, {}, None)


def test_an_empty_night_takes_no_column_away(store: Kept) -> None:
    database = Memory()
    push(store.manifest, database)
    store.commit_without_index({})
    assert push(store.manifest, database).rows == 0
    writes, columns = database.writes_left, database.state()
    push(store.manifest, database)
    assert (database.writes_left, database.state()) == (writes, columns)
    assert columns is not None
    assert "text" in columns.columns


def test_a_changed_kept_value_is_written_though_its_text_is_the_same(store: Kept) -> None:
    class Other(Kept):
        def kept(self, texts):  # type: ignore[no-untyped-def]
            table = super().kept(texts)
            return table.set_column(1, "size", [[size + (size == 6) for size in table["size"].to_pylist()]])

    database = Memory()
    push(store.manifest, database)
    other = Other(store.root, count=1)
    other.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(9)}))
    done = push(other.manifest, database)
    assert done.changes.changed == 9
    assert {row["size"] for row in database.rows.values()} == {7}


def test_rows_changed_since_a_run_are_written_whatever_the_database_says(store: Kept) -> None:
    database = Memory()
    texts = {f"i{n}": f"text {n}" for n in range(9)}
    store.commit_without_index(files_of(texts | {"i1": "other"}))
    push(store.manifest, database)
    for key in (("i1", 0), ("i2", 0)):
        database.rows[key]["text"] = "spoilt"
    assert push(store.manifest, database).changes.changed == 0
    assert push(store.manifest, database, since="run1").changes.changed == 1
    assert [database.rows[key]["text"] for key in (("i1", 0), ("i2", 0))] == ["other", "spoilt"]
    assert push(store.manifest, database, full=True).changes.changed == 9
    assert database.rows["i2", 0]["text"] == "text 2"
    store.commit_without_index(files_of({i: text for i, text in texts.items() if i != "i8"} | {"i1": "other"}))
    assert [push(store.manifest, database, since="run1").changes.deleted for _ in range(2)] == [1, 0]


def test_full_deletes_what_the_store_has_not(store: Kept) -> None:
    database = Memory()
    push(store.manifest, database)
    database.rows["i99", 0] = dict(database.rows["i1", 0])
    with pytest.raises(Exception, match="holds 10 rows"):
        push(store.manifest, database)
    done = push(store.manifest, database, full=True)
    assert (done.changes.deleted, done.rows) == (1, 9)


def test_a_snapshot_that_is_gone_is_named(store: Kept) -> None:
    database = Memory()
    push(store.manifest, database)
    store.commit_without_index(files_of({"i1": "one"}))
    (store.root / "manifests" / "run1.json").unlink()
    with pytest.raises(OptionError, match="rows of run1, which is no snapshot of .* push with --full"):
        push(store.manifest, database)
    assert push(store.manifest, database, full=True).rows == 1


def test_an_id_of_two_rows_is_named_before_anything_is_written(tmp_path: Path) -> None:
    store, database = Kept(tmp_path / "store"), Memory(writes_left=0)
    store.commit_without_index({"a": [("i1", "one")], "b": [("i1", "two")]})
    with pytest.raises(DataGateError, match="the id 'i1' is that of several rows"):
        push(store.manifest, database)


def test_many_rows_are_compared_in_parts(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.push.compare.LISTED_ROWS", 5)
    rng, database = random.Random(3), Memory()
    for _ in range(4):
        texts = {f"i{n}": rng.choice(TEXTS) for n in range(60) if rng.random() < 0.7}
        store.commit_without_index(files_of(texts))
        push(store.manifest, database)
        check(database.held(), expected(files_of(texts)))
