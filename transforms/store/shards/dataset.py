"""The rows of a snapshot as a dataset of pyarrow."""

from typing import TYPE_CHECKING

import pyarrow as pa

from transforms import storage
from transforms.store.manifest import Manifest

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def dataset_of(manifest: Manifest) -> "ds.Dataset":
    """Return a snapshot's shards as a dataset (columns: docs/store.md); empty without a shard.

    The checksum of each page that is read is compared. Of a remote store the first shard's footer
    is read at once.
    """
    import pyarrow.dataset as ds  # imports an installed pandas too: a third of a second

    paths = manifest.shard_paths
    if not paths:
        return ds.dataset(pa.table({"id": pa.array([], pa.string())}))
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    kind = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    if storage.is_local(manifest.root):
        return ds.dataset(paths, format=kind)
    from transforms.store.shards.shard_files import shard_files

    files = shard_files(manifest)
    schema = kind.make_fragment(paths[0], files).physical_schema
    return ds.FileSystemDataset.from_paths(paths, schema, kind, files)
