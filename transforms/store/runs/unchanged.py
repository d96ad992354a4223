"""Unchanged files on their way to the plan: by name, since the last snapshot has the rest."""

from dataclasses import dataclass, replace

from sentence_beam.transforms.base.compact import by_values
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.store.known_files import KnownFiles
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.carried import Checked
from sentence_beam.transforms.store.runs.plan import PlannedFile, file_of

Known = Manifest | KnownFiles


@by_values
@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """A file, by its relative path, that a run carries over with all its units.

    `checked` and `ms` as for PlannedFile.
    """

    relative: str
    checked: Checked
    ms: float | None


def by_name(item: PlannedFile, last: Known, syntax: Syntax) -> UnchangedFile | None:
    """Return the file by name; None if it or a unit differs from the last snapshot."""
    relative = item.file.relative
    in_short = UnchangedFile(relative, item.checked, item.ms)
    if relative not in last.files_by_path or item != in_full(in_short, last, syntax):
        return None
    return in_short


def in_full(item: UnchangedFile, last: Known, syntax: Syntax) -> PlannedFile:
    """Return the file with its units from the last snapshot; `syntax` is the run's."""
    file = file_of(last.files_by_path[item.relative])
    if syntax != AS_FOUND:
        file = replace(file, syntax=syntax)
    carried = tuple(last.units_by_file.get(item.relative, ()))
    return PlannedFile(file, carried=carried, checked=item.checked, ms=item.ms)
