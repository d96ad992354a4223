"""Reading a store: the current snapshot as a dataset, and search over it."""

import importlib.util
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import MissingExtraError, OptionError
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.corpus.given_ids import Id, format_ids, is_one_id
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.layout import default_store
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots
from sentence_beam.transforms.store.shards.dataset import open_dataset
from sentence_beam.transforms.store.shards.precision import Coding, read_kept_ranges
from sentence_beam.transforms.store.store_info import collect_info

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from sentence_beam.transforms.search import Hit

LATEST = 5
LATEST_NAME = "latest"


class SearchKeywords(TypedDict, total=False):
    """The options of `Store.search`."""

    where: "str | pc.Expression | None"
    min_score: float | None
    exact: bool
    fold: str
    width: int
    rerank: StrPath | None


@dataclass(frozen=True)
class Store:
    """A snapshot of a store, which stays the same while later runs commit others."""

    manifest: Manifest

    @property
    def root(self) -> str:
        """The full path or URL of the store."""
        return self.manifest.root

    @property
    def space(self) -> Space:
        """The space of the snapshot's vectors."""
        return self.manifest.space

    def dataset(self) -> "ds.Dataset":
        """Return the snapshot's rows as a pyarrow dataset (columns: docs/store.md).

        It is empty if the snapshot has no shard. Pages are compared with their checksums when they
        are read; pyarrow raises OSError if one differs.

        Of a remote store the first shard's footer is read at once, each shard when its rows are
        read, and nothing is kept.
        """
        return open_dataset(self.manifest)

    def __len__(self) -> int:
        return self.manifest.rows.stored

    def __bool__(self) -> bool:
        return True  # also without rows it is a store

    def __repr__(self) -> str:
        return (
            f"<Store {self.root}: {format_count(len(self), 'row')}, {self.space.dim}"
            f" dimensions, run {self.manifest.run}>"
        )

    def vectors(self, column: pa.ChunkedArray | pa.FixedSizeListArray | None = None) -> np.ndarray:
        """Return vectors float32 [n, dim] of a column `embedding`, or of all rows.

        The column may have any precision.
        """
        if column is None:
            return self.numpy()[1]
        entry = self.manifest.ranges
        ranges = read_kept_ranges(self.root, entry) if entry else None
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        return Coding(self.space, ranges).decode(column)

    def numpy(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all rows, strings [n], and their vectors, float32 [n, dim]."""
        if not len(self):
            return np.empty(0, object), np.empty((0, self.space.dim), np.float32)
        table = self.dataset().to_table(columns=["id", "embedding"])
        return table["id"].to_numpy(), self.vectors(table["embedding"])

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a data frame (columns: docs/store.md).

        Raises MissingExtraError if pandas is not installed.
        """
        if importlib.util.find_spec("pandas") is None:
            raise MissingExtraError(
                "to_pandas needs pandas: pip install pandas; dataset().to_table() does without"
            )
        return self.dataset().to_table().to_pandas()

    def rows(self, ids: Id | Iterable[Id]) -> pa.Table:
        """Return the rows with these ids, in the order of the ids; numbers as `embed` wrote them.

        Raises OptionError for an id that no row has.
        """
        import pyarrow.compute as pc

        wanted = pa.array(dict.fromkeys(format_ids(ids)), pa.string())
        rows = self.dataset().to_table(filter=pc.field("id").isin(wanted))
        place = pc.index_in(rows["id"], wanted).to_numpy()
        missing = np.setdiff1d(np.arange(len(wanted)), place)
        if len(missing):
            raise OptionError(
                f"{self.root} has no row with the id {wanted[int(missing[0])].as_py()!r}"
            )
        return rows.take(np.argsort(place, kind="stable"))

    def info(self) -> dict[str, Any]:
        """Return facts about the store, as `sentence-beam info --json` prints them.

        They include model, space, rows, columns and the last run.
        """
        return collect_info(self.manifest)

    @overload  # a str is a sequence of str too, for which this one comes first
    def search(  # type: ignore[overload-overlap]
        self, texts: str, k: int = 10, **how: Unpack[SearchKeywords]
    ) -> "list[Hit]": ...

    @overload
    def search(
        self, texts: Sequence[str], k: int = 10, **how: Unpack[SearchKeywords]
    ) -> "list[list[Hit]]": ...

    @overload
    def search(  # type: ignore[overload-overlap]
        self, *, ids: Id, k: int = 10, **how: Unpack[SearchKeywords]
    ) -> "list[Hit]": ...

    @overload
    def search(
        self, *, ids: Iterable[Id], k: int = 10, **how: Unpack[SearchKeywords]
    ) -> "list[list[Hit]]": ...

    @overload
    def search(
        self, *, vectors: np.ndarray, k: int = 10, **how: Unpack[SearchKeywords]
    ) -> "list[list[Hit]]": ...

    def search(
        self,
        texts: str | Sequence[str] | None = None,
        k: int = 10,
        *,
        ids: Id | Iterable[Id] | None = None,
        vectors: np.ndarray | None = None,
        **how: Unpack[SearchKeywords],
    ) -> "list[Hit] | list[list[Hit]]":
        """Find the k rows nearest to a text, best first, or those nearest to each of several texts.

        `ids` of stored rows (numbers as `embed` wrote them), or `vectors` [q, dim], can take the
        place of texts. `where` is a
        filter, as the text of --where or an expression of pyarrow, `min_score` the least score, and
        `exact=True` compares all rows. If rows are pieces of documents, `fold="best"` gives
        documents, each with its best piece and a `passage` of `width` characters around it,
        `"none"` the pieces. `rerank` is the folder of a cross-encoder, which scores the best 100.
        """
        is_single = isinstance(texts, str) or (ids is not None and is_one_id(ids))
        texts = [texts] if isinstance(texts, str) else texts
        names = None if ids is None else format_ids(ids)
        hits: list[list[Hit]] = self._searcher.search(texts, k, ids=names, vectors=vectors, **how)
        return hits[0] if is_single else hits

    @cached_property
    def _searcher(self) -> Any:
        # Search imports the encoder and this package; only this method imports a layer above its
        # own.
        from sentence_beam.transforms.search import READ_LISTS, Searcher

        return Searcher(self.manifest, copies=READ_LISTS)


def open_store(path: StrPath | None = None, snapshot: str | None = None) -> Store:
    """Open the current snapshot of a store, or the one that `snapshot` names for `find_named_run`.

    Without a path it is the store of a command that names none.

    Raises OptionError if it does not exist.
    """
    root = storage.absolute(default_store() if path is None else path)
    run = None if snapshot is None else find_named_run(root, snapshot)
    manifest = read_manifest(root, run)
    if manifest is None:
        raise make_missing_error(root, snapshot)
    return Store(manifest)


def find_named_run(root: str, name: str, others: Collection[str] = ()) -> str:
    """Return the run of a snapshot that a person names.

    The name is an id or the beginning of one, `latest`, or `-1` for the one before. `others` are
    runs without a snapshot that may be named too. Raises OptionError for a name of no run, and for
    the beginning of several.
    """
    if name == LATEST_NAME:
        return _find_run_before(root, 0, name)
    if re.fullmatch(r"-[1-9]\d{0,5}", name):
        return _find_run_before(root, -int(name), name)
    runs = sorted({*snapshots(root), *others}, reverse=True)
    if name in runs:
        return name
    matches = [run for run in runs if name and run.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        what = "runs" if others else "snapshots"
        raise OptionError(
            f"{root}: {name} begins the names of {len(matches)} {what} ({_join(matches)}); say more"
        )
    if others:
        raise OptionError(f"{root} has no run {name}; the latest are {_join(runs)}")
    raise make_missing_error(root, name)


def _find_run_before(root: str, steps: int, name: str) -> str:
    """Return the run so many snapshots before the current one, which `name` asks for."""
    manifest = read_manifest(root)
    for _ in range(steps):
        earlier = manifest.previous if manifest is not None else None
        manifest = read_manifest(root, earlier) if earlier else None
    if manifest is None:
        raise make_missing_error(root, name)
    return manifest.run


def _join(runs: Sequence[str]) -> str:
    return ", ".join(runs[:LATEST])


def make_missing_error(root: str, snapshot: str | None) -> OptionError:
    """Return the error for a store that does not exist, or has no such snapshot."""
    runs = snapshots(root) if snapshot is not None else []
    if runs:
        return OptionError(f"{root} has no snapshot {snapshot}; the latest are {_join(runs)}")
    return OptionError(
        f"{root} holds no store (no manifest.json); check the path, or make one with sentence-beam"
        " embed"
    )
