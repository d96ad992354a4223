"""Keyed hashes of erased rows: how a row that returns is known, whose key it is, what is on disk."""

from pathlib import Path

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRow,
    ForgottenRows,
    Returning,
    hash_of_id,
    hash_of_text,
    read_key,
    read_rows,
    returning,
    write_rows,
)

KEY = b"k" * 32
TEXT = bytes(16)
ROW = ForgottenRow(hash_of_id(KEY, "a"), (hash_of_text(KEY, TEXT),))


def test_ids_texts_and_keys_are_kept_apart() -> None:
    names = [hash_of_id(key, "a") for key in (KEY, b"other key of 16 b")]
    names += [hash_of_text(KEY, b"a"), hash_of_id(KEY, "b")]
    assert len(set(names)) == 4
    assert hash_of_id(KEY, "a") == hash_of_id(KEY, "a")
    assert {len(name) for name in names} == {32}


def test_a_row_that_returns_is_known_by_its_id_if_rows_have_their_own() -> None:
    known = Returning.of(ForgottenRows.none(KEY, by_id=True).with_rows([ROW]), KEY)
    assert known.find("a", b"another text") == ROW.id
    assert known.find("b", TEXT) is None


def test_a_row_that_returns_is_known_by_its_text_if_ids_are_places() -> None:
    known = Returning.of(ForgottenRows.none(KEY, by_id=False).with_rows([ROW]), KEY)
    assert known.find("b", TEXT) == ROW.texts[0]
    assert known.find("a", b"another text") is None


def test_a_row_cut_into_pieces_is_known_by_its_document() -> None:
    row = ForgottenRow(ROW.id, ROW.texts, (hash_of_text(KEY, b"document"),))
    known = Returning.of(ForgottenRows.none(KEY, by_id=False).with_rows([row]), KEY)
    assert known.find("a", b"document") == row.documents[0]
    assert known.find("a", TEXT) is None, "another document may have the piece"


NAMES = st.sampled_from([hash_of_id(KEY, name) for name in "abc"])
ROWS = st.lists(
    st.builds(ForgottenRow, NAMES, st.tuples(NAMES), st.tuples(NAMES), st.tuples(NAMES))
)


@settings(max_examples=examples(30))
@given(ROWS, ROWS)
def test_rows_are_joined_by_id_in_any_order_and_as_often_as_one_likes(
    some: list[ForgottenRow], others: list[ForgottenRow]
) -> None:
    none = ForgottenRows.none(KEY, by_id=True)
    found = none.with_rows(some).with_rows(others)
    assert found == none.with_rows([*others, *some, *others])
    assert [row.id for row in found.rows] == sorted({row.id for row in [*some, *others]})
    for row in [*some, *others]:
        (joined,) = (one for one in found.rows if one.id == row.id)
        assert {*joined.texts} >= {*row.texts}


def test_rows_that_are_let_back_in_are_on_record() -> None:
    rows = ForgottenRows.none(KEY, by_id=True).with_rows([ROW]).without([ROW.id])
    assert (rows.rows, rows.allowed) == ((), (ROW.id,))
    assert rows.without([ROW.id]) == rows


def test_the_key_is_the_stores_own_or_is_given_each_time() -> None:
    own = ForgottenRows.none(None, by_id=True)
    assert own.key_with(None, "store") == bytes.fromhex(own.key)
    assert own.key != ForgottenRows.none(None, by_id=True).key
    with pytest.raises(OptionError, match="store has a key of its own"):
        own.key_with(KEY, "store")
    kept = ForgottenRows.none(KEY, by_id=True)
    assert (kept.key, kept.key_with(KEY, "store")) == ("", KEY)
    with pytest.raises(OptionError, match="is kept elsewhere; say --key"):
        kept.key_with(None, "store")
    with pytest.raises(OptionError, match="not the key by which rows of store were erased"):
        kept.key_with(b"o" * 32, "store")


@pytest.mark.parametrize("size", [15, 65])
def test_a_key_of_the_wrong_length_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "key").write_bytes(b"x" * size)
    with pytest.raises(OptionError, match=f"has {size} bytes, a key has 16 to 64"):
        read_key(str(tmp_path / "key"))


def test_a_key_is_read_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY + b"\n")
    assert read_key(str(tmp_path / "key")) == KEY
    with pytest.raises(OptionError, match="cannot be read"):
        read_key(str(tmp_path / "none"))


def test_the_list_is_read_back_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    rows = ForgottenRows.none(KEY, by_id=True).with_rows([ROW])
    entry = write_rows(str(tmp_path), rows)
    assert entry.rows == 1
    assert read_rows(str(tmp_path), entry) == rows
    assert returning(str(tmp_path), entry, KEY).find("a", TEXT) == ROW.id
    path = tmp_path / entry.path
    assert b'"a"' not in path.read_bytes()
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(SentenceBeamError, match="without it they would return"):
        read_rows(str(tmp_path), entry)
    path.unlink()
    with pytest.raises(SentenceBeamError, match="without it they would return"):
        read_rows(str(tmp_path), entry)
