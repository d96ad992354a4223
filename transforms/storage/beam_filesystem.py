"""Storage of every other scheme, through Beam's filesystems.

These have no conditional writes: `put_if_absent`, `replace_if` and `delete_if` check first, then
write.
"""

import hashlib
from typing import BinaryIO, cast

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.transforms.storage.base import (
    Entry,
    Matched,
    get_checksum,
    match_file,
    read_version,
    select_between,
)
from sentence_beam.transforms.storage.beam_options import get_filesystem_options
from sentence_beam.transforms.storage.globs import Glob, match_entries


class BeamStorage:
    """Files of any scheme that Beam has a filesystem for."""

    pins = False

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        glob = Glob(pattern, hidden)
        if glob.is_literal:
            return match_file(self.stat(pattern))
        metadata = FileSystems.match([glob.literal + "**"])[0].metadata_list
        listed = {m.path: m for m in metadata if not m.path.endswith("/")}
        names = match_entries(glob, [Entry(path, 0, "", "") for path in sorted(listed)])
        return names._replace(files=[self._make_entry(listed[entry.path]) for entry in names.files])

    def below(self, folder: str) -> list[Entry]:
        metadata = FileSystems.match([f"{folder}/**"])[0].metadata_list
        entries = (
            Entry(m.path, m.size_in_bytes, "", "", m.last_updated_in_seconds) for m in metadata
        )
        return sorted(entries, key=lambda e: e.path)

    def lists_ranges(self, folder: str) -> bool:
        return False

    def between(self, folder: str, low: str, high: str) -> list[Entry]:
        return select_between(self.below(folder), folder, low, high)

    def stat(self, path: str) -> Entry | None:
        metadata = FileSystems.match([path])[0].metadata_list
        return self._make_entry(metadata[0]) if metadata else None

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        reader = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return cast(BinaryIO, reader)

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        if not FileSystems.exists(path):
            return None
        with self.open(path) as f:
            data = f.read()
        return data, hashlib.sha256(data).hexdigest()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if FileSystems.exists(path):
            return False
        self._write(path, data)
        return True

    def checksum_of(self, path: str, data: bytes) -> str:
        return get_checksum(self.stat(path))

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        if read_version(self, path) != version:
            return False
        self._write(path, data)
        return True

    def delete(self, *paths: str) -> None:
        try:
            if paths:
                FileSystems.delete(list(paths))
        except BeamIOError:
            if any(map(FileSystems.exists, paths)):
                raise

    def delete_if(self, path: str, version: str) -> bool:
        if read_version(self, path) != version:
            return False
        self.delete(path)
        return True

    def _make_entry(self, metadata: FileMetadata) -> Entry:
        size = metadata.size_in_bytes
        checksum = str(FileSystems.checksum(metadata.path))
        modified = metadata.last_updated_in_seconds
        return Entry(metadata.path, size, checksum, f"{size}-{checksum}", modified)

    def _write(self, path: str, data: bytes) -> None:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as f:
            f.write(data)


def make_beam_storage(path: str) -> BeamStorage:
    """Return the storage of a path. Raises ValueError if Beam has no filesystem for its scheme."""
    # A command without a pipeline sets no options, and some filesystems fail without them.
    if get_filesystem_options() is None:
        FileSystems.set_options(PipelineOptions([]))
    try:
        FileSystems.get_filesystem(path)
    except BeamIOError as error:
        raise ValueError(str(error)) from error
    return BeamStorage()
