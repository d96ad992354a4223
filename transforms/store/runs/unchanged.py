"""Files that have not changed, on their way from where they were looked at to the plan: by name,
since the last snapshot has all else of them."""

from dataclasses import dataclass, replace

from transforms.base.compact import by_values
from transforms.store.manifest import Manifest
from transforms.store.runs.carried import Checked
from transforms.store.runs.plan import PlannedFile, file_of


@by_values
@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """A file, by its relative path, that a run takes over from the last snapshot as that has it,
    with all its units.

    `checked` and `ms` as for PlannedFile.
    """

    relative: str
    checked: Checked
    ms: float | None


def by_name(item: PlannedFile, last: Manifest, delimiter: str | None) -> UnchangedFile | None:
    """The file by name; None if anything of it, or of its units, is not as the last snapshot has
    it.
    """
    relative = item.file.relative
    in_short = UnchangedFile(relative, item.checked, item.ms)
    if relative not in last.files_by_path or item != in_full(in_short, last, delimiter):
        return None
    return in_short


def in_full(item: UnchangedFile, last: Manifest, delimiter: str | None) -> PlannedFile:
    """The file with its units, made of what the last snapshot holds in memory; `delimiter` is that
    of the run.
    """
    file = file_of(last.files_by_path[item.relative])
    if delimiter is not None:
        file = replace(file, delimiter=delimiter)
    carried = tuple(last.units_by_file.get(item.relative, ()))
    return PlannedFile(file, carried=carried, checked=item.checked, ms=item.ms)
