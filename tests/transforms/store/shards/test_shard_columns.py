"""The own columns of shards: one list, from which all else follows."""

import pyarrow as pa
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.shards import shard_columns


def test_a_new_own_column_is_one_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    new = shard_columns.OwnColumn("language", pa.string(), is_hidden=True)
    shard_columns.check_kept(RememberedOptions(keep_columns=("language",)))
    monkeypatch.setattr(shard_columns, "OWN", (*shard_columns.OWN, new))
    assert (
        shard_columns.make_own_schema(pa.list_(pa.float32(), 3), False).field("language").type
        == pa.string()
    )
    assert "language" in shard_columns.list_own_columns(["id"])
    assert "language" in shard_columns.list_hidden_columns(False)
    with pytest.raises(OptionError, match="every shard has a column language of its own"):
        shard_columns.check_kept(RememberedOptions(keep_columns=("language",)))


def test_what_leaves_a_store_of_the_own_columns() -> None:
    assert shard_columns.PUSHED_COLUMNS == ("id", "embedding", "piece", "pieces", "start", "end")
    assert shard_columns.ADDED_COLUMNS == ("embedding", "norm", "tokens", "truncated")
    assert shard_columns.ADDED_PIECE_COLUMNS == ("piece", "pieces", "start", "end")
    assert shard_columns.PLACE_COLUMNS == ("piece", "start", "end")


def test_own_columns_of_pieces_are_in_shards_of_pieces_alone() -> None:
    vectors = pa.list_(pa.float32(), 3)
    rows = ["id", "embedding", "norm", "row_hash", "tokens", "truncated"]
    assert shard_columns.make_own_schema(vectors, False).names == rows
    assert shard_columns.make_own_schema(vectors, True).names == [
        *rows,
        "piece",
        "pieces",
        "start",
        "end",
        "doc_hash",
    ]
    assert "doc_hash" not in shard_columns.list_hidden_columns(False)
    assert "doc_hash" in shard_columns.list_hidden_columns(True)


@pytest.mark.parametrize(
    ("kept", "types", "said"),
    [
        ("id", {}, "keep_columns id: .*; say id_column id"),
        ("embedding", {}, "keep_columns embedding: .*; rename it in the input"),
        ("piece", {}, "keep_columns piece: .*; rename it in the input"),
        ("body", {"body": "int"}, "keep_columns body:int: it is the column with the text"),
    ],
)
def test_kept_columns_that_a_shard_has_already(kept: str, types: dict[str, str], said: str) -> None:
    columns = {"keep_columns": ("lang", kept), "keep_types": types, "text_column": "body"}
    with pytest.raises(OptionError, match=said):
        shard_columns.check_kept(RememberedOptions(model="m", **columns))
