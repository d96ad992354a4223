"""Elements of a plan: large enough to work without waiting, small enough to spread."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from transforms.corpus import InputFile
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
    """Input files that one worker is to plan."""

    files: tuple[InputFile, ...]


@dataclass(frozen=True)
class PlannedFiles:
    """Files that one worker has planned, or is to open; `unchanged` ones travel by name."""

    files: tuple[PlannedFile, ...]
    unchanged: tuple[UnchangedFile, ...] = ()


def in_batches(files: list[File]) -> Iterator[list[File]]:
    """Yield the files in lists, each for one worker, which opens many small ones in threads."""
    step = max(1, min(FILES_PER_ELEMENT, len(files) // (ROUNDS * SLOTS)))
    yield from (files[start : start + step] for start in range(0, len(files), step))


def spans_per_element(spans: int, slots: int | None) -> int:
    """Return the spans of an element: enough to overlap read, encode and write, few enough to
    spread.

    `slots` is the number of elements that are processed at once, None if it is not known.
    """
    if slots == 1:
        return SPANS_FOR_ONE_PROCESS
    return max(1, min(SPANS_PER_ELEMENT, spans // (ROUNDS * (slots or SLOTS))))
