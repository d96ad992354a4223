"""Elements of a plan: large enough to work without waiting, small enough to spread."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TypeVar

from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.store.key_range import AFTER, ALL_KEYS, KeyRange
from sentence_beam.transforms.store.runs.packed_files import PackedFiles
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.unchanged import UnchangedFile

SPANS_PER_ELEMENT = 8
SPANS_FOR_ONE_PROCESS = 64
FILES_PER_ELEMENT = 256
ROUNDS = 4  # of elements that each slot works off at least, so that the last ones end together
SLOTS = 512  # if their number is not known

File = TypeVar("File")


@dataclass(frozen=True)
class ListedFiles:
    """Input files that one worker is to plan, with the range that their keys are in."""

    files: tuple[InputFile, ...]
    keys: KeyRange = ALL_KEYS


@dataclass(frozen=True)
class PlannedFiles:
    """Files that one worker has planned, or is to open.

    `unchanged` ones travel by name, or `packed`.
    """

    files: tuple[PlannedFile, ...]
    unchanged: tuple[UnchangedFile, ...] = ()
    packed: PackedFiles | None = None


def in_batches(files: list[File], slots: int | None = None) -> Iterator[list[File]]:
    """Yield the files in lists, each for one worker, which opens many small ones in threads.

    `slots` as for `spans_per_element`.
    """
    step = _files_per_element(len(files), slots)
    yield from (files[start : start + step] for start in range(0, len(files), step))


def _files_per_element(files: int, slots: int | None) -> int:
    return max(1, min(FILES_PER_ELEMENT, files // (ROUNDS * (slots or SLOTS))))


def by_key_ranges(
    files: Iterable[InputFile], slots: int | None, starts: Sequence[str] = ()
) -> Iterator[ListedFiles]:
    """Yield the files in batches by ranges of their keys, which together are all keys.

    About as many files as in `in_batches`, but batches begin at the keys `starts`, sorted, where
    parts of the last snapshot's manifest do: a worker that plans a batch then reads one part.
    """
    batches = list(_batches(sorted(files, key=lambda file: file.key), slots, starts))
    low = ""
    for batch, following in zip_longest(batches, batches[1:]):
        high = ""
        if following is not None:
            # a file that is listed twice may be in both
            high = max(following[0].key, batch[-1].key + AFTER)
        yield ListedFiles(tuple(batch), KeyRange(low, high))
        low = batch[-1].key
        if following is not None:
            low = following[0].key


def _batches(
    files: list[InputFile], slots: int | None, starts: Sequence[str]
) -> Iterator[list[InputFile]]:
    """Yield the files, sorted by key, in batches of about equal length between two starts.

    Starts that would leave a batch too short are left out: it has several parts whole.
    """
    step = _files_per_element(len(files), slots)
    places = [0]
    for start in starts:
        place = bisect_left(files, start, key=lambda file: file.key)
        if place - places[-1] >= step:
            places.append(place)
    for first, after in pairwise([*places, len(files)]):
        if first == after:
            continue
        count = max(1, round((after - first) / step))
        ends = [first + (after - first) * number // count for number in range(count + 1)]
        yield from (files[start:stop] for start, stop in pairwise(ends))


def spans_per_element(spans: int, slots: int | None) -> int:
    """Return the spans of an element: enough to overlap read, encode and write, few enough to
    spread.

    `slots` is the number of elements that are processed at once, None if it is not known.
    """
    if slots == 1:
        return SPANS_FOR_ONE_PROCESS
    return max(1, min(SPANS_PER_ELEMENT, spans // (ROUNDS * (slots or SLOTS))))
