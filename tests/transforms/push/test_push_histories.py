"""Whatever happened before, and wherever a push was stopped: the next one leaves the database equal
to the store.

Covers transforms/push/push_snapshot.py.
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.databases import Aliased, Database, Fate, KilledError, MadeUp, Version, push_to
from helpers.examples import examples
from helpers.pushes import Kept, check, expected, files_of, in_memory
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import DataGateError, LedgerError, OptionError
from sentence_beam.transforms.push import Pushed, push
from sentence_beam.transforms.push.state import MARK, State

TEXTS = ["apple", "bird", "cat", ""]
Night = dict[str, str]
NIGHT = st.dictionaries(st.sampled_from([f"i{n}" for n in range(6)]), st.sampled_from(TEXTS))


@pytest.fixture(autouse=True)
def _dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push that was killed here is of a process that lives."""
    monkeypatch.setattr("sentence_beam.transforms.push.turn.STALE_SECONDS", 0)


def bring(store: Kept, database: Database, fate: Fate | None = None, **options: Any) -> Pushed:
    """Push the current snapshot, whatever that deletes."""
    return push_to(MadeUp(database, fate), store.manifest, **options)


@settings(max_examples=examples(12, few=4))
@given(st.lists(st.tuples(NIGHT, st.integers(0, 14), st.booleans()), min_size=1, max_size=5), NIGHT)
def test_a_stopped_push_is_made_good(nights: list[tuple[Night, int, bool]], last: Night) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        store, database = Kept(Path(folder) / "store"), Aliased()
        for texts, operation, full in nights:
            store.commit_without_index(files_of(texts, 2))
            try:
                bring(store, database, Fate(operation, "killed", "lost"), full=full)
            except KilledError:
                continue
            check(database.held(), expected(files_of(texts)))
        store.commit_without_index(files_of(last, 2))
        bring(store, database)
        check(database.held(), expected(files_of(last)))
        writes = database.writes
        assert bring(store, database).changes.added == 0
        assert database.writes == writes


def test_only_what_changed_is_written(store: Kept) -> None:
    database, texts = Aliased(), {f"i{n}": f"text {n}" for n in range(9)}
    done = bring(store, database)
    assert (done.held, done.changes.added, done.rows) == (None, 9, 9)
    del texts["i3"]
    store.commit_without_index(files_of(texts | {"i4": "other", "i20": "new"}))
    writes = database.writes
    done = bring(store, database)
    assert (done.held, done.changes.added, done.changes.changed, done.changes.deleted) == (
        "run1",
        1,
        1,
        1,
    )
    assert [version.kind for version in database.versions[writes + 1 :]] == [
        "notes",
        *["rows"] * 3,
        "notes",
    ]
    check(database.held(), expected(files_of(texts | {"i4": "other", "i20": "new"})))


def test_a_dry_run_counts_and_writes_nothing(store: Kept) -> None:
    database = Aliased()
    done = bring(store, database, dry_run=True)
    assert (done.changes.added, database.versions) == (9, [Version()])


def test_an_empty_night_takes_no_column_away(store: Kept) -> None:
    database = Aliased()
    bring(store, database)
    store.commit_without_index({})
    assert bring(store, database).rows == 0
    writes, state = database.writes, MadeUp(database).state()
    bring(store, database)
    assert database.writes == writes
    assert state is not None
    assert "text" in state.columns


def test_a_changed_kept_value_is_written_though_its_text_is_the_same(store: Kept) -> None:
    class Other(Kept):
        def kept(self, texts):  # type: ignore[no-untyped-def]
            table = super().kept(texts)
            return table.set_column(
                1, "size", [[size + (size == 6) for size in table["size"].to_pylist()]]
            )

    database = Aliased()
    bring(store, database)
    other = Other(store.root, count=1)
    other.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(9)}))
    done = bring(other, database)
    assert done.changes.changed == 9
    assert {kept["size"] for kept, _ in database.held().values()} == {7}


def test_rows_that_somebody_changed_are_written_by_full_alone(store: Kept) -> None:
    database = Aliased()
    texts = {f"i{n}": f"text {n}" for n in range(9)}
    store.commit_without_index(files_of(texts | {"i1": "other"}))
    bring(store, database)
    for key in (("i1", 0), ("i2", 0)):
        rows = database.now.rows
        database.write("rows", rows={**rows, key: [{**rows[key][0], "text": "spoilt"}]})
    assert bring(store, database).changes.changed == 0
    assert [database.held()[name][0]["text"] for name in ("i1", "i2")] == ["spoilt", "spoilt"]
    assert bring(store, database, full=True).changes.changed == 9
    assert [database.held()[name][0]["text"] for name in ("i1", "i2")] == ["other", "text 2"]


def test_full_deletes_what_the_store_has_not(store: Kept) -> None:
    database = Aliased()
    bring(store, database)
    rows = database.now.rows
    database.write("rows", rows={**rows, ("i99", 0): rows["i1", 0]})
    with pytest.raises(Exception, match="holds 10 rows"):
        bring(store, database)
    done = bring(store, database, full=True)
    assert (done.changes.deleted, done.rows) == (1, 9)


def test_all_rows_are_compared_if_the_snapshot_is_gone(store: Kept) -> None:
    database = Aliased()
    bring(store, database)
    store.commit_without_index(files_of({"i1": "one"}))
    (store.root / "manifests" / "run1.json").unlink()
    with pytest.raises(DataGateError, match="8 of its 9 rows would be deleted"):
        bring(store, database, max_deletes=0.5)
    done = bring(store, database)
    assert (done.rows, done.removed) == (1, ("run1",))
    assert list(database.held()) == ["i1"]
    assert bring(store, database).removed == ()


class Bare(Kept):
    """A store that keeps the text alone."""

    def kept(self, texts: list[str]) -> pa.Table:
        """The text."""
        return super().kept(texts).select(["text"])


@pytest.mark.parametrize("kind", [Kept, Bare])
@pytest.mark.parametrize("ended", [True, False])
def test_a_table_of_another_store_is_left_alone(
    store: Kept, quick: Path, kind: type[Kept], ended: bool
) -> None:
    database = Aliased()
    if ended:
        bring(store, database)
    else:
        with pytest.raises(KilledError):
            bring(store, database, Fate(6, "killed", "answered"))
    other = kind(quick / "other", count=100)
    other.commit_without_index(files_of({f"k{n}": f"text {n}" for n in range(9)}))
    before = database.now
    with pytest.raises(
        OptionError,
        match=r"it holds rows of run1, which is no snapshot of .*/other, so it is another",
    ):
        bring(other, database)
    with pytest.raises(DataGateError, match=r"\d of its \d rows would be deleted"):
        bring(other, database, full=True, max_deletes=0.5)
    assert database.now == before
    bring(other, database, full=True)
    assert {row_id for row_id, _ in database.now.rows} == {f"k{n}" for n in range(9)}


def test_columns_that_change_are_written_for_all_rows_by_what_the_store_knows(
    store: Kept, quick: Path
) -> None:
    database = Aliased()
    bare = Bare(quick / "bare")
    bare.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(9)}))
    bring(bare, database)
    kept = Kept(quick / "bare", count=1)
    kept.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(1, 9)}))
    done = bring(kept, database)
    assert (done.held, done.changes.added, done.changes.changed, done.changes.deleted) == (
        "run1",
        0,
        8,
        1,
    )
    check(database.held(), expected(files_of({f"i{n}": f"text {n}" for n in range(1, 9)})))


@pytest.mark.parametrize(("left", "allowed"), [(5, 0.5), (4, 0.5), (8, 0.1), (9, 0.0), (0, 1.0)])
def test_no_more_rows_are_deleted_than_allowed(store: Kept, left: int, allowed: float) -> None:
    database = Aliased()
    bring(store, database)
    store.commit_without_index(
        files_of({f"i{n}": f"text {n}" for n in range(left)} | {"i50": "new", "i51": "new"})
    )
    for how in ({}, {"full": True}):
        before = database.now
        if 9 - left <= allowed * 9:
            assert (
                bring(store, database, max_deletes=allowed, dry_run=True, **how).changes.deleted
                == 9 - left
            )
            continue
        with pytest.raises(
            DataGateError,
            match=rf"{9 - left} of its 9 rows would be deleted, more than max_deletes",
        ):
            bring(store, database, max_deletes=allowed, **how)
        assert database.now is before
    bring(store, database, max_deletes=1)


def test_rows_of_a_push_that_did_not_end_count_for_no_gate(store: Kept) -> None:
    database, texts = Aliased(), {f"i{n}": f"text {n}" for n in range(9)}
    bring(store, database)
    store.commit_without_index(files_of(texts | {f"i{n}": "more" for n in range(9, 90)}))
    with pytest.raises(KilledError):
        bring(store, database, Fate(20, "killed", "answered"))
    assert len(database.now.rows) > 30
    store.commit_without_index(files_of(texts))
    bring(store, database, max_deletes=0)
    check(database.held(), expected(files_of(texts)))


def test_a_push_that_waited_does_not_push_an_old_snapshot(store: Kept) -> None:
    database = Aliased()

    class Waiting(MadeUp):
        """A push that waits for its turn until the store has another snapshot."""

        def state(self) -> State | None:
            """What the database remembers."""
            store.commit_without_index(files_of({"i1": "later"}))
            return super().state()

    assert push(lambda: store.manifest, Waiting(database)).new.run == "run2"
    check(database.held(), expected(files_of({"i1": "later"})))


def test_two_rows_of_an_id_are_made_one_by_a_full_push(store: Kept) -> None:
    database = Aliased()
    bring(store, database)
    rows = database.now.rows
    database.write("rows", rows={**rows, ("i1", 0): rows["i1", 0] * 2})
    with pytest.raises(LedgerError, match="it holds 10 rows"):
        bring(store, database)
    bring(store, database, full=True)
    check(database.held(), expected(files_of({f"i{n}": f"text {n}" for n in range(9)})))


def test_a_table_of_another_format_is_refused(store: Kept) -> None:
    database = Aliased()
    head = {"format": 3, "metric": "cosine", "space": store.space.to_json()}
    database.write("notes", notes={MARK: json.dumps(head)})
    with pytest.raises(OptionError, match="push did not make it"):
        bring(store, database)


def test_an_id_of_two_rows_is_named_before_anything_is_written(tmp_path: Path) -> None:
    store, database = Kept(tmp_path / "store"), Aliased()
    store.commit_without_index({"a": [("i1", "one")], "b": [("i1", "two")]})
    with pytest.raises(DataGateError, match="the id 'i1' is that of several rows"):
        bring(store, database)


def test_many_rows_are_compared_in_parts(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentence_beam.transforms.push.snapshot_difference.LISTED_ROWS", 5)
    rng, database = random.Random(3), Aliased()
    for _ in range(4):
        texts = {f"i{n}": rng.choice(TEXTS) for n in range(60) if rng.random() < 0.7}
        store.commit_without_index(files_of(texts))
        bring(store, database)
        check(database.held(), expected(files_of(texts)))
