"""Files of rejected rows, beside the shard of their unit."""

import hashlib
from collections.abc import Iterable

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import read_parquet_bytes
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus import Rejected
from sentence_beam.transforms.store.shards.shard_bytes import make_parquet

REJECTS_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("excerpt", pa.string()),
    ]
)


def pack_rejects(rejects: list[Rejected]) -> bytes:
    """Return the bytes of a unit's reject file, in the order of the rows' places."""
    return make_parquet(make_rejects_table(sorted(rejects, key=lambda r: (r.file, r.row))))


def make_rejects_table(rejects: Iterable[Rejected]) -> pa.Table:
    """Return rejected rows as a table, as a reject file has them."""
    return pa.Table.from_pylist([vars(reject) for reject in rejects], schema=REJECTS_SCHEMA)


def parse_rejects(data: bytes) -> list[Rejected]:
    """Return the rejected rows of a reject file's bytes.

    Raises SentenceBeamError for bytes of another file.
    """
    with refuse_damage("not a reject file"):
        return [
            Rejected(**row) for row in read_parquet_bytes(data).cast(REJECTS_SCHEMA).to_pylist()
        ]


def count_rejects(data: bytes) -> int | None:
    """Return the rows of a reject file, None for other bytes."""
    try:
        return len(parse_rejects(data))
    except SentenceBeamError:
        return None


def read_rejects(path: str, sha256: str | None) -> list[Rejected]:
    """Return the rows of a reject file.

    Raises SentenceBeamError if the file is missing, or has another sha256.
    """
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        raise SentenceBeamError(f"{path}: the reject file is missing; see verify")
    if sha256 != hashlib.sha256(stored[0]).hexdigest():
        raise SentenceBeamError(
            f"{path}: the reject file was changed after it was written (sha256 differs); see verify"
        )
    try:
        return parse_rejects(stored[0])
    except SentenceBeamError as error:
        raise SentenceBeamError(f"{path}: {error.message}; see verify") from error
