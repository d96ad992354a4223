"""The rows of a snapshot as a dataset of pyarrow."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.store.manifest import Manifest

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def open_dataset(manifest: Manifest) -> "ds.Dataset":
    """Return a snapshot's shards as a dataset (columns: docs/store.md); empty without a shard.

    The checksum of each page that is read is compared. Of a remote store the first shard's footer
    is read at once. Raises SentenceBeamError if it is damaged.
    """
    import pyarrow.dataset as ds  # imports an installed pandas too: a third of a second

    paths = manifest.shard_paths
    if not paths:
        return ds.dataset(pa.table({"id": pa.array([], pa.string())}))
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    kind = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    if storage.is_local(manifest.root):
        with _refuse_footer(paths[0]):
            return ds.dataset(paths, format=kind)
    from sentence_beam.transforms.store.shards.shard_files import open_shard_files

    files = open_shard_files(manifest)
    with _refuse_footer(paths[0]):
        schema = kind.make_fragment(paths[0], files).physical_schema
    return ds.FileSystemDataset.from_paths(paths, schema, kind, files)


@contextlib.contextmanager
def _refuse_footer(path: str) -> Iterator[None]:
    """Raise SentenceBeamError if the body meets a shard whose footer cannot be parsed."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None) is not None:  # of the file, not of its bytes
            raise
        raise SentenceBeamError(
            f"{path} is damaged ({first_line(error)}); run embed, which makes it again"
        ) from error
