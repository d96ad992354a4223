"""Digests: known values, and nothing that is different hashes alike."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.space.hashing import (
    ROW_HASH_BYTES,
    canonical_json,
    pieces_hashes,
    row_hash,
    row_hashes,
    sha256_file,
    sha256_text,
)

PIECES = st.lists(st.tuples(st.text(max_size=4), st.integers(0, 9)), max_size=4)


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical_json({"b": [1, 0.5, None], "a": "é"}) == '{"a":"é","b":[1,0.5,null]}'
    assert canonical_json({"a": "é", "b": [1, 0.5, None]}) == '{"a":"é","b":[1,0.5,null]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_canonical_json_refuses_what_is_no_json(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json([value])


def test_text_is_hashed_as_utf8() -> None:
    assert sha256_text("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert row_hash("é") == hashlib.blake2b(b"\xc3\xa9", digest_size=16).digest()
    assert row_hashes(["a", "é"]) == [row_hash("a"), row_hash("é")]
    assert len(row_hash("")) == ROW_HASH_BYTES


def test_a_file_is_read_again_if_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    for data in (b"", b"first", b"other", b"x" * (1 << 20) + b"y"):
        path.write_bytes(data)
        assert sha256_file(path) == hashlib.sha256(data).hexdigest()
    other = tmp_path / "other"
    other.write_bytes(b"first")
    other.replace(path)
    assert sha256_file(str(path)) == hashlib.sha256(b"first").hexdigest()


@given(PIECES, PIECES)
def test_only_the_same_pieces_have_the_same_hash(
    one: list[tuple[str, int]], other: list[tuple[str, int]]
) -> None:
    first, second = pieces_hashes([one, other])
    assert (first == second) == (one == other)


def test_a_document_of_one_piece_is_not_its_text() -> None:
    assert pieces_hashes([[("text", 1)]]) != [row_hash("text")]
