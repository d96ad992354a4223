"""The one place that touches files: list, read, write once, replace or delete if unchanged, delete.

Local folders get atomic writes and real conditions (`local`), gs:// has its own (`gcs`). s3:// and
all other schemes go through Beam's clients (`s3`, `beam_filesystem`).
"""

from sentence_beam.transforms.storage.base import (
    Entry,
    Storage,
    UnsyncedError,
    absolute,
    is_local,
    join,
)
from sentence_beam.transforms.storage.dispatch import (
    checksum_of,
    delete_below,
    delete_empty_folders,
    ensure,
    names_below,
    on_local_disk,
    overwrite,
    read_bytes,
    read_range,
    replace,
    sha256_of,
    storage_of,
    threads_may_read,
    time_of_storage,
)
from sentence_beam.transforms.storage.memory_rows import ROWS, folder_of_rows, is_rows
from sentence_beam.transforms.storage.named_text import lines_of, read_named, read_text, text_of

__all__ = [
    "ROWS",
    "Entry",
    "Storage",
    "UnsyncedError",
    "absolute",
    "checksum_of",
    "delete_below",
    "delete_empty_folders",
    "ensure",
    "folder_of_rows",
    "is_local",
    "is_rows",
    "join",
    "lines_of",
    "names_below",
    "on_local_disk",
    "overwrite",
    "read_bytes",
    "read_named",
    "read_range",
    "read_text",
    "replace",
    "sha256_of",
    "storage_of",
    "text_of",
    "threads_may_read",
    "time_of_storage",
]
