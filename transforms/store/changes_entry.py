"""The manifest's entry of the files that list what changed since the snapshot before."""

from dataclasses import dataclass
from typing import Annotated

from sentence_beam.transforms.base.json_entries import JsonEntry
from sentence_beam.transforms.store.entries import Digest, RunName, stored


@dataclass(frozen=True)
class ChangedRowsEntry(JsonEntry):
    """A file with changed rows, their number, and the file's sha256."""

    path: Annotated[str, stored("changes")]
    sha256: Digest
    rows: int


@dataclass(frozen=True)
class ChangesEntry(JsonEntry):
    """All files that list the rows which changed since the snapshot of the run `since`.

    They exist as long as that snapshot does.
    """

    since: RunName
    files: tuple[ChangedRowsEntry, ...] = ()
