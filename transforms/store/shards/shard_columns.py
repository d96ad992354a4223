"""The columns of an embedding shard: its own ones, declared once, and those kept from the input."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.pieces import PIECES
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.entries import TEXT, RememberedOptions
from sentence_beam.transforms.store.shards.precision import make_embedding_type


@dataclass(frozen=True)
class OwnColumn:
    """A column of the shards' own, not kept from the input.

    `type` is None if it depends on the space. A column that `is_of_pieces` exists if documents are
    cut; one that `is_optional` follows all others, in shards that need it. A search returns no
    column that `is_hidden`, and no filter may name it. `is_reused` columns are read to reuse the
    vectors of a text. `is_pushed` columns are written to databases; `is_added` ones are added to
    the rows of other people's pipelines; `is_place` ones tell the pieces of a document apart. A
    name that `is_reserved` cannot be a kept column's in any store.
    """

    name: str
    type: pa.DataType | None
    is_of_pieces: bool = False
    is_optional: bool = False
    is_hidden: bool = False
    is_reused: bool = False
    is_pushed: bool = False
    is_added: bool = False
    is_place: bool = False
    is_reserved: bool = True


PIECE = "piece"  # the column that tells a shard whose rows are pieces
_HIDDEN_OF_PIECES = ("doc_hash",)
_PLACE_OF_PIECES = (PIECE, "start", "end")
# All own columns, in the order of a shard. Schemas, hits, reuse, pushes, exports and checks of
# --keep-columns follow from this list; `make_shard_bytes` has their values.
OWN = (
    OwnColumn("id", pa.string(), is_pushed=True),
    OwnColumn("embedding", None, is_hidden=True, is_reused=True, is_pushed=True, is_added=True),
    OwnColumn("norm", pa.float32(), is_hidden=True, is_reused=True, is_added=True),
    OwnColumn("row_hash", pa.binary(16), is_hidden=True, is_reused=True),
    OwnColumn("tokens", pa.int32(), is_hidden=True, is_reused=True, is_added=True),
    OwnColumn("truncated", pa.bool_(), is_hidden=True, is_reused=True, is_added=True),
    OwnColumn("pooled", None, is_optional=True, is_hidden=True, is_reused=True),
    *(
        OwnColumn(
            field.name,
            field.type,
            is_of_pieces=True,
            is_hidden=field.name in _HIDDEN_OF_PIECES,
            is_pushed=field.name not in _HIDDEN_OF_PIECES,
            is_added=field.name not in _HIDDEN_OF_PIECES,
            is_place=field.name in _PLACE_OF_PIECES,
            is_reserved=field.name == PIECE,
        )
        for field in PIECES
    ),
)
OWN_COLUMNS = tuple(column.name for column in OWN if column.is_reserved)
PIECE_COLUMNS = tuple(column.name for column in OWN if column.is_of_pieces)
REUSED_COLUMNS = [column.name for column in OWN if column.is_reused]
PUSHED_COLUMNS = tuple(column.name for column in OWN if column.is_pushed)
PLACE_COLUMNS = tuple(column.name for column in OWN if column.is_place)
OPTIONAL_COLUMNS = tuple(column.name for column in OWN if column.is_optional)
_ADDED = tuple(column for column in OWN if column.is_added)
ADDED_COLUMNS = tuple(column.name for column in _ADDED if not column.is_of_pieces)
ADDED_PIECE_COLUMNS = tuple(column.name for column in _ADDED if column.is_of_pieces)


def list_hidden_columns(pieces: bool) -> frozenset[str]:
    """Return the own columns that no hit of a search shows.

    `pieces` says whether rows are pieces of documents.
    """
    return frozenset(
        column.name for column in OWN if column.is_hidden and (pieces or not column.is_of_pieces)
    )


def check_kept(options: RememberedOptions) -> None:
    """Raise OptionError for kept columns that a shard already has under that name."""
    for name in options.keep_columns:
        if name in list_own_columns(()):
            mend = f"say {cite('id_column')} id" if name == "id" else "rename it in the input"
            raise OptionError(
                f"{cite('keep_columns')} {name}: every shard has a column {name} of its own; {mend}"
            )
    kind = options.keep_types.get(options.text_column, "str")
    if options.keeps_text_column and kind != "str":
        raise OptionError(
            f"{cite('keep_columns')} {options.text_column}:{kind}: it is the column with the text;"
            f" leave {kind} out"
        )
    if TEXT in options.keep_columns and options.keep_text and not options.keeps_text_column:
        raise OptionError(
            f"{cite('keep_columns')} {TEXT}: the store keeps what is embedded under that name,"
            f" which is another text; say {cite('keep_text=False')}, or rename the column in the"
            " input"
        )


def list_own_columns(names: Sequence[str]) -> frozenset[str]:
    """Return the columns of a shard that are not kept ones."""
    return frozenset(column.name for column in OWN if column.is_reserved or PIECE in names)


def make_schema(space: Space, kept: pa.Schema, pieces: bool = False) -> pa.Schema:
    """Return the schema of a store's shards, without file metadata.

    `pieces` says whether rows are pieces of documents.
    """
    own = make_own_schema(make_embedding_type(space), pieces)
    return pa.schema([*own, *((field.name, field.type) for field in kept)])


def make_own_schema(embedding: pa.DataType, pieces: bool) -> pa.Schema:
    """Return the own columns that every shard has, the vectors of a type, and those of pieces."""
    return pa.schema(
        (column.name, embedding if column.type is None else column.type)
        for column in OWN
        if not column.is_optional and (pieces or not column.is_of_pieces)
    )
