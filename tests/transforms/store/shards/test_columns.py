"""The own columns of shards: one list, from which all else follows."""

import pyarrow as pa
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.shards import columns


def test_a_new_own_column_is_one_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    new = columns.OwnColumn("language", pa.string(), is_hidden=True)
    columns.check_kept(RememberedOptions(keep_columns=("language",)))
    monkeypatch.setattr(columns, "OWN", (*columns.OWN, new))
    assert (
        columns.schema_of_own(pa.list_(pa.float32(), 3), False).field("language").type
        == pa.string()
    )
    assert "language" in columns.own_columns(["id"])
    assert "language" in columns.hidden_columns(False)
    with pytest.raises(OptionError, match="every shard has a column language of its own"):
        columns.check_kept(RememberedOptions(keep_columns=("language",)))


def test_what_leaves_a_store_of_the_own_columns() -> None:
    assert columns.PUSHED_COLUMNS == ("id", "embedding", "piece", "pieces", "start", "end")
    assert columns.ADDED_COLUMNS == ("embedding", "norm", "tokens", "truncated")
    assert columns.ADDED_PIECE_COLUMNS == ("piece", "pieces", "start", "end")
    assert columns.PLACE_COLUMNS == ("piece", "start", "end")


def test_own_columns_of_pieces_are_in_shards_of_pieces_alone() -> None:
    vectors = pa.list_(pa.float32(), 3)
    rows = ["id", "embedding", "norm", "row_hash", "tokens", "truncated"]
    assert columns.schema_of_own(vectors, False).names == rows
    assert columns.schema_of_own(vectors, True).names == [
        *rows,
        "piece",
        "pieces",
        "start",
        "end",
        "doc_hash",
    ]
    assert "doc_hash" not in columns.hidden_columns(False)
    assert "doc_hash" in columns.hidden_columns(True)
