"""The shards of a snapshot by their numbers, and as files for Arrow if it is remote.

Sizes are the manifest's, so that no request asks for them. A shard is open only while it is read.
"""

from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sentence_beam.transforms import storage
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_reading import open_shard, take_rows


def open_numbered(manifest: Manifest, number: int) -> AbstractContextManager[pq.ParquetFile]:
    """Open a shard of a snapshot, as `open_shard` does."""
    shard = manifest.shard(number)
    return open_shard(shard.full_path, shard.bytes)


def take_numbered(
    manifest: Manifest, number: int, rows: np.ndarray, columns: list[str]
) -> pa.Table:
    """Return rows int64 [m] of a shard of a snapshot, as `take_rows` does."""
    shard = manifest.shard(number)
    return take_rows(shard.full_path, rows, columns, shard.bytes)


def open_shard_files(manifest: Manifest) -> fs.FileSystem:
    """Return a read-only filesystem with the shards of a snapshot, by their full paths."""
    return fs.PyFileSystem(_ShardFiles(manifest))


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("the shards of a snapshot can be read, and nothing else")


class _ShardFiles(fs.FileSystemHandler):
    def __init__(self, manifest: Manifest):
        self._manifest = manifest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ShardFiles) and other._manifest == self._manifest

    def get_type_name(self) -> str:
        return "shards"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return list(map(self._describe_file, paths))

    def _describe_file(self, path: str) -> fs.FileInfo:
        size = self._find_size(path)
        if size is None:
            return fs.FileInfo(path, fs.FileType.NotFound)
        return fs.FileInfo(path, fs.FileType.File, size=size)

    def _find_size(self, path: str) -> int | None:
        """Return the bytes of a shard by its full path; None for other files."""
        root = storage.join(self._manifest.root, "")
        number = self._manifest.find_shard_number(path.removeprefix(root))
        return None if number < 0 else self._manifest.shard(number).bytes

    def open_input_file(self, path: str) -> pa.NativeFile:
        size = self._find_size(path)
        if size is None:
            raise FileNotFoundError(path)
        entry = storage.Entry(path, size, checksum="", version="")
        return pa.PythonFile(storage.storage_of(path).open(path, entry), mode="r")

    open_input_stream = open_input_file
    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = (
        delete_root_dir_contents
    ) = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
