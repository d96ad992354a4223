"""The answers of ranges to the known queries, kept from run to run.

A range keeps more answers than are needed, and the sizes of its lists. A run asks it again only for
queries of which more answers were deleted, and reads only the lists that these look into; of other
ranges it reads nothing.
"""

from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow import as_keys
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError, refuse_damage
from sentence_beam.transforms.index import Candidates, ExactNeighbours, SegmentedIndex, TrainedIndex
from sentence_beam.transforms.index.array_bytes import pack, unpack
from sentence_beam.transforms.index.range_readers import MappedRange, RangeFile, RangeReader
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.files import SPARE, Folder
from sentence_beam.transforms.storage.bounded_cache import BoundedCache
from sentence_beam.transforms.store.index_entries import IndexFileEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files.remote_range import CACHE, RemoteRange


@dataclass(frozen=True)
class KeptAnswers:
    """The candidates of a range for texts, uint8 [q, 16] ascending.

    Deleted rows may be among them. `sizes` uint32 are the rows in each of its lists.
    """

    texts: np.ndarray
    candidates: Candidates
    sizes: np.ndarray

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        candidates = np.frombuffer(self.candidates.to_bytes(), np.uint8)
        return pack(texts=self.texts, candidates=candidates, sizes=self.sizes)

    @classmethod
    def from_bytes(cls, data: bytes) -> "KeptAnswers":
        """Return the answers that `to_bytes` wrote."""
        arrays = unpack(data)
        candidates = Candidates.from_bytes(arrays["candidates"].tobytes())
        return cls(arrays["texts"], candidates, arrays["sizes"])


def keep_answers(
    folder: Folder, segment: SegmentEntry, texts: np.ndarray, which: np.ndarray, nprobes: list[int]
) -> IndexFileEntry:
    """Write what a range was found to answer to some of the queries, at some nprobes.

    `which` bool [q] are the queries to keep.
    """
    found = folder.parsed(scratch.answers(segment.number), Candidates.from_bytes)
    sizes = folder.take(scratch.list_sizes(segment.number)).astype(np.uint32)
    kept = KeptAnswers(texts[which], found.of(which).narrowed(nprobes), sizes)
    return folder.file(kept.to_bytes(), "answers")


def kept_answers(
    folder: Folder, segment: SegmentEntry, depth: int, nprobes: list[int]
) -> KeptAnswers | None:
    """Return what a range answered to the queries that were left; None if it has to be asked.

    Answers that were kept for other settings or other texts do not count, nor those of an earlier
    version, nor damaged ones.
    """
    if segment.answers is None:
        return None
    try:
        data = index_files.read(folder.stored(segment.answers.path), segment.answers.sha256)
        with refuse_damage("answers of a range are not what was written"):
            kept = KeptAnswers.from_bytes(data)
    except SentenceBeamError:
        return None
    if kept.candidates.depth != depth + SPARE or kept.candidates.nprobes != nprobes:
        return None
    wanted = as_keys(folder.take(scratch.TEXTS))
    known = as_keys(kept.texts)
    place = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
    if not len(known) or not (known[place] == wanted).all():
        return None
    return replace(kept, texts=kept.texts[place], candidates=kept.candidates.of(place))


def ask_again(
    folder: Folder,
    segment: SegmentEntry,
    trained: TrainedIndex,
    exact: ExactNeighbours,
    keep: np.ndarray,
    kept: KeptAnswers,
) -> bool:
    """Leave a range's neighbours of the queries, with answers that were kept.

    `keep` bool [rows] is False for deleted rows. Returns whether any query was asked again.
    """
    found = kept.candidates
    depth = found.depth - SPARE
    deleted = np.flatnonzero(~keep) | segment.number << 32
    stale = found.is_short(deleted, depth)
    if stale.any():
        index = SegmentedIndex.open([_range_file(folder, segment, keep)], trained)
        again = Candidates.search(
            index, exact.queries[stale], found.depth, found.nprobes, segment=segment.number
        )
        found = found.with_rows(stale, again)
    folder.leave(scratch.list_sizes(segment.number), kept.sizes.astype(np.int64))
    folder.put(scratch.exact(segment.number), exact.to_bytes())
    folder.put(scratch.found(segment.number), found.without(deleted).trimmed(depth).to_bytes())
    folder.put(scratch.answers(segment.number), found.to_bytes())
    return bool(stale.any())


def _range_file(folder: Folder, segment: SegmentEntry, keep: np.ndarray) -> RangeFile:
    if segment.lists is None:
        raise DamagedIndexError(f"{segment.path} is no range")
    path = folder.stored(segment.path)
    reader: RangeReader
    if storage.is_local(path):
        reader = MappedRange(path, segment.header_sha256)
    else:
        reader = RemoteRange(path, segment, BoundedCache(CACHE, 0))
    deleted = int(np.count_nonzero(~keep))
    return RangeFile(reader, *segment.lists, segment.rows, segment.first_id, deleted, lambda: keep)
