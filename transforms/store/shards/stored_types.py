"""The types of the kept columns of a snapshot, which its shards have."""

import contextlib
from collections.abc import Iterable

import pyarrow as pa

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.arrow_types import NO_TYPE
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_reading import open_shard


def read_stored_types(last: Manifest, names: Iterable[str]) -> dict[str, pa.DataType]:
    """Return the Arrow types of those columns that the shards of a snapshot have, by name.

    A column without a value so far has no type yet.
    """
    options = last.options
    typed = [name for name in names if options.keep_types.get(name) != NO_TYPE]
    kept = [name for name in typed if name in options.keep_columns]
    if not kept:
        return {}
    for path in last.shard_paths:
        # a damaged one is made again
        with contextlib.suppress(SentenceBeamError), open_shard(path) as parquet:
            return {name: parquet.schema_arrow.field(name).type for name in kept}
    return {}
