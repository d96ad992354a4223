"""Find the segments of an index with erased rows that were deleted from it before."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_keys
from sentence_beam.transforms.steps.forget.select import SelectedRows, name_damage
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.steps.index.update import ErasedFromIndex
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.manifest import Manifest


def find_erased_from_index(manifest: Manifest, selected: SelectedRows) -> ErasedFromIndex | None:
    """Return what has to leave a snapshot's index beside the rows; None without an index.

    Raises SentenceBeamError naming a file of the index that is missing or was changed.
    """
    if manifest.index is None:
        return None
    segments = _find_segments(manifest.root, manifest.index, selected)
    crowded = _find_crowded(manifest.root, manifest.index, selected)
    return ErasedFromIndex(tuple(segments), tuple(crowded))


def _find_segments(root: str, index: IndexEntry, selected: SelectedRows) -> list[int]:
    """Return the segments of which a deleted row has one of the ids or texts."""
    ids = pa.array(sorted(selected.texts), pa.string())
    texts = pa.array(sorted(selected.hashes), pa.binary(16))
    numbers = []
    for segment in progress.count_over(index.segments, "reading locators", "segments"):
        path = storage.join(root, segment.locator)
        with name_damage(path):
            locator = locators.from_bytes(index_files.read(path, segment.locator_sha256))
        deleted = locator.filter(locator.column("shard").is_null())
        named = pc.any(pc.is_in(deleted.column("id"), ids)).as_py()
        if named or pc.any(pc.is_in(deleted.column("row_hash"), texts)).as_py():
            numbers.append(segment.number)
    return numbers


def _find_crowded(root: str, index: IndexEntry, selected: SelectedRows) -> list[str]:
    """Return the erased texts, hashes in hex, among those that are too many to be held out."""
    path = storage.join(root, index.queries.path)
    with name_damage(path):
        queries = KnownQueries.from_bytes(index_files.read(path, index.queries.sha256))
    keys = as_keys(as_hashes(pa.array(sorted(selected.hashes), pa.binary(16))))
    return [
        text.tobytes().hex() for text in queries.crowded[np.isin(as_keys(queries.crowded), keys)]
    ]
