"""Draw samples of a given size by keyed hash, from files, tasks and stores of any size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_hashes
from sentence_beam.transforms.base.columns import get_numbers
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus import Columns, match_inputs, read_files
from sentence_beam.transforms.corpus.found_columns import choose_text_column
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.index.keyed_sample import sample_keys
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.space import row_hash, row_hashes
from sentence_beam.transforms.store import Store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_reading import read_pooled

# Of a store with more shards so many are read, or more if they have few rows.
SHARDS_READ = 256
ROWS_READ = 4  # times the rows of the sample
Item = TypeVar("Item")


class Smallest(Generic[Item]):
    """The items with the `want` smallest keys of all that were added.

    At most twice as many are held meanwhile.
    """

    def __init__(self, want: int) -> None:
        self._want = want
        self.held: list[tuple[int, int, Item]] = []
        self._above = 1 << 64
        self.seen = 0

    def add(self, key: int, item: Item) -> None:
        """Add an item, if its key may be among the smallest."""
        self.seen += 1
        if key >= self._above:
            return
        self.held.append((key, self.seen, item))
        if len(self.held) > 2 * self._want + 64:
            self._cut()

    def _cut(self) -> None:
        self.held = sorted(self.held, key=lambda held: held[:2])[: self._want]
        self._above = self.held[-1][0] if len(self.held) == self._want else 1 << 64

    def items(self) -> list[Item]:
        """Return the items by ascending key: an arbitrary order that never changes."""
        self._cut()
        return [item for _, _, item in self.held]


@dataclass(frozen=True)
class Sampled:
    """Texts and vectors drawn from `total` rows.

    `texts` is None if none are kept. `vectors` are by pooler, float32 [n, d] each.
    """

    total: int
    texts: list[str] | None
    vectors: dict[str, np.ndarray]


_Drawn = tuple[np.ndarray, np.ndarray | None, str | None]  # pooled and final vector, text


def _draw(
    row: int, pooled: np.ndarray, final: np.ndarray | None, batch: pa.RecordBatch, text: str | None
) -> _Drawn:
    """Copy one row out of a block."""
    vector = final[row].copy() if final is not None else None
    kept = batch.column(text)[row].as_py() if text is not None else None
    return pooled[row].copy(), vector, kept


def compute_keys(texts: Sequence[str], ids: Sequence[str]) -> list[int]:
    """Return the key of each row, by its text and its id."""
    hashes = np.frombuffer(b"".join(row_hashes(texts)), np.uint8).reshape(-1, 16)
    return sample_keys(hashes, ids).tolist()


def sample_files(
    patterns: Sequence[str], file_format: str, syntax: Syntax, column: str | None, want: int
) -> Sampled:
    """Draw texts from files, without the rows that `embed` would reject.

    Without a `column` of texts it is found. Raises OptionError if no row is left.
    """
    matched = {
        file.path: file
        for glob in patterns
        for file in match_inputs(glob, file_format, syntax=syntax)
    }
    files = [matched[path] for path in sorted(matched)]
    columns = Columns(choose_text_column(files, column))
    smallest: Smallest[str] = Smallest(want)
    for unit in read_files(files, columns):
        for key, text in zip(compute_keys(unit.texts, unit.ids), unit.texts, strict=True):
            smallest.add(key, text)
    if not smallest.seen:
        raise OptionError(
            f"{cite('input')} holds no row with text; check {cite('input')} and"
            f" {cite('text_column')}"
        )
    return Sampled(smallest.seen, smallest.items(), {})


def sample_store(store: Store, want: int, where: str | None = None) -> Sampled:
    """Draw vectors of a snapshot, by the pooler that made them, and their texts if they are kept.

    Of many shards some are read, chosen by hash; all of them with `where`, a filter of the rows.
    With a calibration there are the calibrated vectors too. Raises OptionError if there are no
    rows.
    """
    selection = Selection.from_manifest(store.manifest, where)
    selection.check_rows()
    smallest: Smallest[_Drawn] = Smallest(want)
    total = None
    shards: Sequence[int] = range(len(store.manifest.shards))
    if where is None:
        total = store.manifest.rows.stored
        shards = choose_shards(store.manifest, want)
    for shard in shards:
        path = store.manifest.shard(shard).full_path
        rows = selection.rows_of(shard)
        selected = frozenset(rows.tolist()) if rows is not None else None
        for key, drawn in _read_rows(store, path, selected):
            smallest.add(key, drawn)
    return _stack_drawn(store, smallest, total)


def _read_rows(
    store: Store, path: str, selected: frozenset[int] | None
) -> Iterator[tuple[int, _Drawn]]:
    """Yield the key and the copy of each row of a shard, or of the `selected` rows."""
    space = store.space
    text = _find_text_column(store)
    columns = ["id", "row_hash"]
    if text is not None:
        columns.append(text)
    if space.calibration:
        columns.append("embedding")
    start = 0
    for pooled, batch in read_pooled(path, space.normalize, tuple(columns)):
        hashes = as_hashes(batch.column("row_hash"))
        keys = sample_keys(hashes, batch.column("id").to_pylist()).tolist()
        final = store.vectors(batch.column("embedding")) if space.calibration else None
        for row, key in enumerate(keys):
            if selected is None or start + row in selected:
                yield key, _draw(row, pooled, final, batch, text)
        start += len(keys)


def _find_text_column(store: Store) -> str | None:
    return "text" if store.manifest.options.keep_text else None


def _stack_drawn(store: Store, smallest: Smallest[_Drawn], total: int | None) -> Sampled:
    rows = smallest.items()
    name = store.manifest.options.pooler
    vectors = {name: np.stack([pooled for pooled, _, _ in rows])}
    if store.space.calibration:
        calibrated = [final for _, final, _ in rows if final is not None]
        vectors[f"{name}, calibrated"] = np.stack(calibrated)
    texts = None
    if _find_text_column(store) is not None:
        texts = [text for _, _, text in rows if text is not None]
    return Sampled(total or smallest.seen, texts, vectors)


def choose_shards(manifest: Manifest, want: int) -> list[int]:
    """Return the numbers of the shards from which a sample of `want` rows is drawn.

    The shards are those with the smallest hashes of their units' names, so that most are the same
    in the next snapshot.
    """
    units = manifest.shards.column("unit").to_pylist()
    order = sorted(range(len(units)), key=lambda number: row_hash(units[number]))
    ends = np.cumsum(get_numbers(manifest.shards, "rows")[order])
    enough = int(np.searchsorted(ends, ROWS_READ * want)) + 1
    return sorted(order[: max(SHARDS_READ, enough)])
