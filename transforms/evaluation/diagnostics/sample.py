"""A sample by keyed hash, of a size that is known beforehand, from files, tasks and stores of any size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from transforms.base.arrow import as_hashes
from transforms.base.errors import OptionError
from transforms.corpus import Columns, InputFile, match_inputs, plan_file, read_span
from transforms.corpus.spans import UNIT_TOKENS
from transforms.index.sample import sample_keys
from transforms.space import row_hashes
from transforms.store import Store
from transforms.store.shards.reading import read_pooled

Item = TypeVar("Item")


class Smallest(Generic[Item]):
    """The items with the `want` smallest keys of all that were added; at most twice as many are held meanwhile."""

    def __init__(self, want: int) -> None:
        self._want = want
        self._held: list[tuple[int, int, Item]] = []
        self._above = 1 << 64
        self.seen = 0

    def add(self, key: int, item: Item) -> None:
        """Take an item in, if its key may be among the smallest."""
        self.seen += 1
        if key >= self._above:
            return
        self._held.append((key, self.seen, item))
        if len(self._held) > 2 * self._want + 64:
            self._cut()

    def _cut(self) -> None:
        self._held = sorted(self._held, key=lambda held: held[:2])[: self._want]
        self._above = self._held[-1][0] if len(self._held) == self._want else 1 << 64

    def taken(self) -> list[Item]:
        """The items, by ascending key: an order that means nothing and never changes."""
        self._cut()
        return [item for _, _, item in self._held]


@dataclass(frozen=True)
class Sampled:
    """What was drawn of `total` rows: their texts (None: none are kept), and vectors by pooler, float32 [n, d] each."""

    total: int
    texts: list[str] | None
    vectors: dict[str, np.ndarray]


def keys_of(texts: Sequence[str], ids: Sequence[str]) -> list[int]:
    """The key of each row, by its text and its id."""
    hashes = np.frombuffer(b"".join(row_hashes(texts)), np.uint8).reshape(-1, 16)
    return sample_keys(hashes, ids).tolist()


def of_files(patterns: Sequence[str], file_format: str, delimiter: str | None, column: str, want: int) -> Sampled:
    """Texts of files; rows that `embed` would reject are left out. Raises OptionError where none is left."""
    smallest: Smallest[str] = Smallest(want)
    for file in _files(patterns, file_format, delimiter):
        for span in plan_file(file, column, UNIT_TOKENS):
            for unit in read_span(span, Columns(column), UNIT_TOKENS):
                for key, text in zip(keys_of(unit.texts, unit.ids), unit.texts, strict=True):
                    smallest.add(key, text)
    if not smallest.seen:
        raise OptionError("--input holds no row with text; check --input and --text-column")
    return Sampled(smallest.seen, smallest.taken(), {})


def _files(patterns: Sequence[str], file_format: str, delimiter: str | None) -> Iterator[InputFile]:
    found = {file.path: file for glob in patterns for file in match_inputs(glob, file_format, delimiter=delimiter)}
    return (found[path] for path in sorted(found))


def of_store(store: Store, want: int) -> Sampled:
    """Vectors of a store's current snapshot, by the pooler that made them, and their texts where the store has them.

    With a calibration there are the calibrated vectors too. Raises OptionError for a store without rows.
    """
    paths, space = store.manifest.shard_paths, store.space
    if not paths:
        raise OptionError(f"{store.root} holds no rows; there is nothing to diagnose")
    text = "text" if store.manifest.options.keep_text else None
    columns = ("id", "row_hash", *([text] if text else []), *(["embedding"] if space.calibration else []))
    smallest: Smallest[tuple[np.ndarray, np.ndarray | None, str | None]] = Smallest(want)
    for path in paths:
        for pooled, batch in read_pooled(path, space.normalize, tuple(dict.fromkeys(columns))):
            keys = sample_keys(as_hashes(batch.column("row_hash")), batch.column("id").to_pylist()).tolist()
            final = store.vectors(batch.column("embedding")) if space.calibration else None
            for row, key in enumerate(keys):
                said = batch.column(text)[row].as_py() if text else None
                smallest.add(key, (pooled[row].copy(), None if final is None else final[row].copy(), said))
    taken = smallest.taken()
    name = store.manifest.options.pooler
    vectors = {name: np.stack([item[0] for item in taken])}
    if space.calibration:
        vectors[f"{name}, calibrated"] = np.stack([item[1] for item in taken if item[1] is not None])
    texts = [item[2] for item in taken if item[2] is not None]
    return Sampled(smallest.seen, texts if text else None, vectors)
