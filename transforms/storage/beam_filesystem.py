"""Storage of every other scheme, by Beam's filesystems.

These can create and delete but have no conditional write: `put_if_absent`, `replace_if` and
`delete_if` check first and write then.
"""

import hashlib
from typing import BinaryIO, cast

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from transforms.storage.base import Entry, Matched
from transforms.storage.beam_options import filesystem_options
from transforms.storage.globs import Glob, matched


class BeamStorage:
    """Files of any scheme that Beam has a filesystem for."""

    pins = False

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        glob = Glob(pattern, hidden)
        if glob.is_literal:
            entry = self.stat(pattern)
            return Matched([entry] if entry else [], [])
        found = FileSystems.match([glob.literal + "**"])[0].metadata_list
        listed = {m.path: m for m in found if not m.path.endswith("/")}
        names = matched(glob, [Entry(path, 0, "", "") for path in sorted(listed)])
        return names._replace(files=[self._entry(listed[entry.path]) for entry in names.files])

    def below(self, folder: str) -> list[Entry]:
        found = FileSystems.match([f"{folder}/**"])[0].metadata_list
        entries = (Entry(m.path, m.size_in_bytes, "", "", m.last_updated_in_seconds) for m in found)
        return sorted(entries, key=lambda e: e.path)

    def stat(self, path: str) -> Entry | None:
        found = FileSystems.match([path])[0].metadata_list
        return self._entry(found[0]) if found else None

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        return cast(
            BinaryIO, FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        )

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        if not self._exists(path):
            return None
        with self.open(path) as f:
            data = f.read()
        return data, hashlib.sha256(data).hexdigest()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self._exists(path):
            return False
        self._write(path, data)
        return True

    def checksum_of(self, path: str, data: bytes) -> str:
        entry = self.stat(path)
        return entry.checksum if entry else ""

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        current = self.read_versioned(path)
        if (current[1] if current else None) != version:
            return False
        self._write(path, data)
        return True

    def delete(self, *paths: str) -> None:
        try:
            if paths:
                FileSystems.delete(list(paths))
        except BeamIOError:
            if any(map(self._exists, paths)):
                raise

    def delete_if(self, path: str, version: str) -> bool:
        current = self.read_versioned(path)
        if current is None or current[1] != version:
            return False
        self.delete(path)
        return True

    def _exists(self, path: str) -> bool:
        return FileSystems.exists(path)

    def _entry(self, found: FileMetadata) -> Entry:
        checksum = str(FileSystems.checksum(found.path))
        version = f"{found.size_in_bytes}-{checksum}"
        return Entry(
            found.path, found.size_in_bytes, checksum, version, found.last_updated_in_seconds
        )

    def _write(self, path: str, data: bytes) -> None:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as f:
            f.write(data)


def storage_by_beam(path: str) -> BeamStorage:
    """The storage that holds a path. Raises ValueError where Beam has no filesystem for its
    scheme.
    """
    # a command without a pipeline sets none, and some do not go without
    if filesystem_options() is None:
        FileSystems.set_options(PipelineOptions([]))
    try:
        FileSystems.get_filesystem(path)
    except BeamIOError as error:
        raise ValueError(str(error)) from error
    return BeamStorage()
