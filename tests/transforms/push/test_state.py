"""The records of pushes: which snapshots a table's rows may be of."""

import json
from dataclasses import replace

import pytest
from helpers.nights import space_of

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.push.state import FORMAT, MARK, PushRecord, State, name_note
from sentence_beam.transforms.store.runs.lease import Lease

COLUMNS = {"id": "string", "embedding": "fixed_size_list<item: float>[8]"}
WRITER = Lease("push", "host", 7, "push", "", 1.5)


def record(run: str, **values: object) -> PushRecord:
    return replace(PushRecord(run, COLUMNS), **values)  # type: ignore[arg-type]


def state(**pushes: PushRecord) -> State:
    return State(space_of(), "ip", pushes)


def test_a_table_that_nobody_has_pushed_into_holds_nothing() -> None:
    empty = state()
    assert (empty.live, empty.unfinished, empty.held, empty.columns) == ({}, {}, None, {})
    assert not empty.is_known


def test_a_finished_push_replaces_the_records_that_it_names() -> None:
    first = record("run1", done=True)
    found = state(a=first, b=record("run2", done=True, replaces=("a",)))
    assert set(found.live) == {"b"}
    assert found.held == found.pushes["b"]
    assert found.is_known


def test_a_push_that_still_writes_replaces_nothing() -> None:
    found = state(a=record("run1", done=True), b=record("run2", replaces=("a",), writer=WRITER))
    assert set(found.live) == {"a", "b"}
    assert set(found.unfinished) == {"b"}
    assert found.held == found.pushes["a"]
    assert found.is_known


def test_a_record_that_is_written_late_stays_to_compare_with() -> None:
    """The push of run3 replaced what it found; a frozen one added its record afterwards."""
    found = state(
        a=record("run1", done=True),
        b=record("run3", done=True, replaces=("a",)),
        late=record("run2"),
    )
    assert set(found.live) == {"b", "late"}
    assert set(found.unfinished) == {"late"}


def test_rows_are_unknown_while_a_push_of_all_rows_goes_on() -> None:
    whole = record("run2", whole=True)
    assert not state(a=record("run1", done=True), b=whole).is_known
    assert state(a=record("run1", done=True), b=replace(whole, done=True)).is_known
    assert not state(b=record("run1")).is_known


def test_columns_are_those_of_the_last_finished_push_else_of_any() -> None:
    other = {"id": "string"}
    assert state(a=record("run1", columns=other), b=record("run0", done=True)).columns == COLUMNS
    assert state(a=record("run1", columns=other), b=record("run0")).columns == other


def test_text_and_notes_give_the_same_state() -> None:
    made = state(a=record("run1", done=True), b=record("run2", replaces=("a",), writer=WRITER))
    assert State.from_text(made.text, "db") == made
    assert State.from_notes(made.notes, "db") == made
    assert set(made.notes) == {MARK, name_note("a"), name_note("b")}
    assert State.from_notes({**made.notes, "another": "note"}, "db") == made


ANOTHER_FORMAT = json.dumps({"space": space_of().to_json(), "metric": "l2", "format": FORMAT + 1})


@pytest.mark.parametrize(
    "text",
    [None, "", "no json", "[]", "{}", "[" * 100_000, ANOTHER_FORMAT],
    ids=["nothing", "empty", "text", "list", "object", "deep", "format"],
)
def test_what_push_did_not_make_is_refused(text: str | None) -> None:
    with pytest.raises(OptionError, match="to db: it is there, and push did not make it"):
        State.from_text(text, "db")


def test_a_note_that_is_no_record_is_refused() -> None:
    with pytest.raises(OptionError, match="push did not make it"):
        State.from_notes({**state().notes, name_note("a"): "{}"}, "db")
