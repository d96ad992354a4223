"""Counts of the files that no glob of a run takes, by folder and by reason."""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sentence_beam.transforms.corpus.left_out import MARKED, REASONS
from sentence_beam.transforms.storage.globs import Glob, get_folder, get_literal_part

HIDDEN = "hidden"
HIDDEN_FOLDER = "hidden folder"
NO_ENDING = "without an ending"


@dataclass(frozen=True)
class Beside:
    """The number of files that no glob of a run takes: by folder, then by reason.

    A reason is "hidden", "hidden folder", the ending of the name, or one of `left_out`.
    """

    folders: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def from_paths(
        cls, paths: Iterable[str], left_out: Mapping[str, str], globs: frozenset[str], hidden: bool
    ) -> "Beside":
        """Count the paths beside the files of one glob, and its files that are left out, by reason.

        Paths that other `globs` of the run take are not counted.
        """
        all_globs = _compile(globs, hidden)
        reasons = [
            (path, _find_reason(path, hidden))
            for path in paths
            if not any(glob.takes(path) or glob.enters(path) for glob in all_globs)
        ]
        unmarked = _compile(globs, hidden, marked=False)
        reasons += [
            (path, reason)
            for path, reason in left_out.items()
            if reason != MARKED or not any(glob.takes(path) for glob in unmarked)
        ]
        folders: dict[str, Counter[str]] = {}
        for path, reason in reasons:
            if path not in globs:
                folders.setdefault(get_folder(path), Counter())[reason] += 1
        return cls({folder: dict(counts) for folder, counts in folders.items()})

    def total(self) -> dict[str, int]:
        """The counts of all folders by reason: files that are left out, then the largest first."""
        total: Counter[str] = Counter()
        for counts in self.folders.values():
            total.update(counts)
        return dict(sorted(total.items(), key=_rank))


def _rank(item: tuple[str, int]) -> tuple[bool, int, str]:
    reason, count = item
    return reason not in REASONS, -count, reason


def merge_counts(elements: Iterable[Any]) -> Beside:
    """Join the counts among the elements of a plan.

    A folder in which two globs looked counts once.
    """
    folders: dict[str, dict[str, int]] = {}
    for element in elements:
        if isinstance(element, Beside):
            folders.update(element.folders)
    return Beside(folders)


@functools.lru_cache(2)
def _compile(globs: frozenset[str], hidden: bool, marked: bool = True) -> tuple[Glob, ...]:
    """The globs that have a wildcard."""
    return tuple(Glob(glob, hidden, marked) for glob in globs if get_literal_part(glob) != glob)


def _find_reason(path: str, hidden: bool) -> str:
    name = path.rstrip("/").rpartition("/")[2]
    if name.startswith(".") and not hidden:
        return HIDDEN_FOLDER if path.endswith("/") else HIDDEN
    return name_ending(path)


def name_ending(path: str) -> str:
    """The ending of a path's name in lower case, or that it has none."""
    _, dot, ending = path.rpartition("/")[2].lstrip(".").rpartition(".")
    return f".{ending.lower()}" if dot else NO_ENDING
