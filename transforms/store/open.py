"""Reading a store: the current snapshot as a dataset, and search over it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transforms import storage
from transforms.errors import OptionError
from transforms.space import Space
from transforms.store import layout
from transforms.store.manifest import Manifest, read_manifest, snapshots
from transforms.store.precision import Coding, kept_ranges

if TYPE_CHECKING:
    import pyarrow.dataset as ds

LATEST = 5


@dataclass(frozen=True)
class Store:
    """One snapshot of a store; readers hold on to it while later runs commit others."""

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
        """The snapshot's rows as a pyarrow dataset (columns: docs/store.md); an empty one without any shard.

        What is read is compared with the checksum of its page; pyarrow raises OSError where it differs.

        Of a remote store the first shard's footer is read at once, each shard when its rows are, and nothing is kept.
        """
        import pyarrow.dataset as ds  # brings pandas along where it is installed: a third of a second

        paths = self.manifest.shard_paths
        if not paths:
            return ds.dataset(pa.table({"id": pa.array([], pa.string())}))
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        kind = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        if storage.is_local(self.root):
            return ds.dataset(paths, format=kind)
        from transforms.store.shard_files import shard_files

        files = shard_files(self.manifest)
        schema = kind.make_fragment(paths[0], files).physical_schema
        return ds.FileSystemDataset.from_paths(paths, schema, kind, files)

    def vectors(self, column: pa.ChunkedArray | pa.FixedSizeListArray) -> np.ndarray:
        """Vectors float32 [n, dim] of rows of the column `embedding`, whatever the precision."""
        entry = self.manifest.data.get("ranges")
        coding = Coding(self.space, kept_ranges(self.root, entry) if entry else None)
        return coding.decode(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)

    def search(self, texts: list[str], k: int = 10, *, exact: bool = False) -> list[list[dict[str, Any]]]:
        """The k rows nearest to each text: dicts of rank, score, id and kept columns, best first."""
        return self._searcher.search(texts, k, exact=exact)

    @cached_property
    def _searcher(self) -> Any:
        # Search imports the encoder and this package; only this method imports a layer above its own.
        from transforms.search import Searcher

        return Searcher(self.manifest)


def open_store(path: str, snapshot: str | None = None) -> Store:
    """Open the current snapshot of a store, or that of a run. Raises OptionError where there is none."""
    root = storage.absolute(path)
    named = snapshot is None or layout.snapshot_run(layout.snapshot(snapshot)) == snapshot  # else it is some path
    manifest = read_manifest(root, snapshot) if named else None
    if manifest is not None:
        return Store(manifest)
    runs = snapshots(root) if snapshot is not None else []
    if runs:
        raise OptionError(f"{root} has no snapshot {snapshot}; the latest are {', '.join(runs[:LATEST])}")
    raise OptionError(f"{root} holds no store (no manifest.json); check the path, or make one with sentence-beam embed")
