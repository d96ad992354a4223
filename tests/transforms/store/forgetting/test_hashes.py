"""Keyed hashes of erased rows: how a row that returns is known, and what is on disk."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRow,
    ForgottenRows,
    Returning,
    hash_id,
    hash_text,
    make_entry,
    read_rows,
    returning,
    write_rows,
)

KEY = b"k" * 32
TEXT = bytes(16)
ROW = ForgottenRow(hash_id(KEY, "a"), True, (hash_text(KEY, TEXT),))
NONE = ForgottenRows(KEY.hex())


def test_ids_texts_and_keys_are_kept_apart() -> None:
    names = [hash_id(key, "a") for key in (KEY, b"other key of 16 b")]
    names += [hash_text(KEY, b"a"), hash_id(KEY, "b")]
    assert len(set(names)) == 4
    assert hash_id(KEY, "a") == hash_id(KEY, "a")
    assert {len(name) for name in names} == {32}


def known_by(*rows: ForgottenRow) -> Returning:
    """What recognises some rows."""
    return Returning.from_rows(NONE.add_rows(rows))


def test_a_row_that_returns_is_known_by_its_id_if_it_has_its_own() -> None:
    known = known_by(ROW)
    assert known.find("a", b"another text") == ROW.id
    assert known.find("b", TEXT) is None
    assert known.find(None, TEXT) is None


def test_a_row_that_returns_is_known_by_its_text_if_ids_are_places() -> None:
    known = known_by(replace(ROW, by_id=False))
    assert known.find("b", TEXT) == ROW.texts[0]
    assert known.find(None, TEXT) == ROW.texts[0]
    assert known.find("a", b"another text") is None
    assert known.find("a", None) is None


def test_a_row_cut_into_pieces_is_known_by_its_document() -> None:
    row = ForgottenRow(ROW.id, False, ROW.texts, (hash_text(KEY, b"document"),))
    known = known_by(row)
    assert known.find("a", b"document") == row.documents[0]
    assert known.find("a", TEXT) is None, "another document may have the piece"


def test_rows_known_by_id_and_by_text_are_found_together() -> None:
    """A store gets a column of ids after its first erasure."""
    other = ForgottenRow(hash_id(KEY, "f#3"), False, (hash_text(KEY, b"t"),))
    known = known_by(ROW, other)
    assert known.find("a", b"u") == ROW.id
    assert known.find("z", b"t") == other.texts[0]
    assert known.find("f#3", b"u") is None


NAMES = st.sampled_from([hash_id(KEY, name) for name in "abc"])
ROWS = st.lists(st.builds(ForgottenRow, NAMES, st.just(True), st.tuples(NAMES), st.tuples(NAMES)))


@settings(max_examples=examples(30))
@given(ROWS, ROWS)
def test_rows_are_joined_by_id_in_any_order_and_as_often_as_one_likes(
    some: list[ForgottenRow], others: list[ForgottenRow]
) -> None:
    found = NONE.add_rows(some).add_rows(others)
    assert found == NONE.add_rows([*others, *some, *others])
    assert [row.id for row in found.rows] == sorted({row.id for row in [*some, *others]})
    for row in [*some, *others]:
        (joined,) = (one for one in found.rows if one.id == row.id)
        assert {*joined.texts} >= {*row.texts}


def test_rows_that_are_let_back_in_are_on_record() -> None:
    rows = NONE.add_rows([ROW]).without([ROW.id])
    assert (rows.rows, rows.allowed) == ((), (ROW.id,))
    assert rows.without([ROW.id]) == rows


def test_each_store_has_a_key_of_its_own() -> None:
    assert ForgottenRows.none().key != ForgottenRows.none().key


def test_the_list_is_read_back_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    rows = NONE.add_rows([ROW])
    write_rows(str(tmp_path), rows)
    entry = make_entry(rows, "run")
    assert entry.rows == 1
    assert read_rows(str(tmp_path), entry) == rows
    assert returning(str(tmp_path), entry).find("a", TEXT) == ROW.id
    path = tmp_path / entry.path
    assert b'"a"' not in path.read_bytes()
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(SentenceBeamError, match="without it they would return"):
        read_rows(str(tmp_path), entry)
    path.unlink()
    with pytest.raises(SentenceBeamError, match="without it they would return"):
        read_rows(str(tmp_path), entry)
