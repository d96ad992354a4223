"""Elements of a plan: large enough to work without waiting, small enough to spread."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from transforms.corpus import InputFile
from transforms.store.key_range import AFTER, ALL_KEYS, KeyRange
from transforms.store.runs.packed_files import PackedFiles
from transforms.store.runs.plan import PlannedFile
from transforms.store.runs.unchanged import UnchangedFile

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
    step = max(1, min(FILES_PER_ELEMENT, len(files) // (ROUNDS * (slots or SLOTS))))
    yield from (files[start : start + step] for start in range(0, len(files), step))


def by_key_ranges(files: Iterable[InputFile], slots: int | None) -> Iterator[ListedFiles]:
    """Yield the files in batches by ranges of their keys, which together are all keys."""
    batches = list(in_batches(sorted(files, key=lambda file: file.key), slots))
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


def spans_per_element(spans: int, slots: int | None) -> int:
    """Return the spans of an element: enough to overlap read, encode and write, few enough to
    spread.

    `slots` is the number of elements that are processed at once, None if it is not known.
    """
    if slots == 1:
        return SPANS_FOR_ONE_PROCESS
    return max(1, min(SPANS_PER_ELEMENT, spans // (ROUNDS * (slots or SLOTS))))
