"""Files of a run that appends: new ones, and those of earlier runs."""

from dataclasses import replace

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.path_values import some_values
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.footers import checksum_of
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.carried import CarriedShards
from sentence_beam.transforms.store.runs.commit import last_snapshot
from sentence_beam.transforms.store.runs.plan import PlannedFile, file_of


def by_names_on_record(files: list[InputFile], job: EmbedJob) -> list[InputFile]:
    """Return the files; those that the store has keep their relative paths there."""
    last = last_snapshot(job.run)
    if last is None:
        return files
    names = {entry.source: entry.path for entry in last.files if has_root(entry)}
    return [replace(file, relative=names.get(file.path, file.relative)) for file in files]


def has_root(entry: InputEntry) -> bool:
    """Whether a file of the store has a path to find it again; rows of a program have none."""
    return entry.source.endswith(entry.path) and not storage.is_rows(entry.source)


def with_earlier(
    named: list[PlannedFile], last: Manifest, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """Return the plan with all units of the last snapshot's files that are not named now.

    Raises OptionError if the store has another file of the same name with other content,
    SentenceBeamError if a shard is gone.
    """
    earlier = dict(last.files_by_path)
    for item in named:
        was = earlier.pop(item.file.relative, None)
        if was is None or not was.checksum:  # one that was left out had none, and no rows
            continue
        is_replaced = has_root(was) or storage.is_rows(was.source)
        if was.source != item.file.path or not is_replaced:
            _check_same_content(item.file, was, job)
    units_of = {path: last.units_by_file.get(path, []) for path in earlier}
    for path, entry in earlier.items():
        gone = next(iter(shards.check(units_of[path]).damaged), None)
        if gone is not None:
            raise SentenceBeamError(
                f"{storage.join(job.root, gone)} is missing or was changed; name {entry.source}"
                " with --input too, to embed it again"
            )
    kept = [
        PlannedFile(
            file_of(earlier[path]),
            carried=tuple(map(shards.current, units)),
            kept=(),
            checked=shards.check(units),
            is_rowless=not last.counts(path),
        )
        for path, units in units_of.items()
    ]
    if not job.carry:
        kept = [_to_read(item) for item in kept]
    return sorted([*named, *kept], key=lambda item: item.file.relative)


def _to_read(item: PlannedFile) -> PlannedFile:
    """Return a file of an earlier run as one to open, because the types of kept columns change.

    Raises OptionError if it is gone or has changed.
    """
    if item.is_rowless:
        return item
    why = "the type of a kept column changes"
    mend = "or keep the type with --keep-columns (NAME:str if the column has no value so far)"
    return PlannedFile(_file_now(item.file, why, mend), checked=item.checked)


def same_content(file: InputFile, entry: InputEntry, job: EmbedJob) -> bool:
    """Whether a file has the content that the last snapshot has of it, also in its path."""
    is_same = (entry.size, entry.checksum, entry.format) == (file.size, file.checksum, file.format)
    return is_same and same_path_values(file, entry, job)


def same_path_values(file: InputFile, entry: InputEntry, job: EmbedJob) -> bool:
    """Whether the columns that a run reads have the same values in the path of both."""
    names = job.columns.path_names
    return some_values(file.path, names) == some_values(entry.source, names)


def _check_same_content(file: InputFile, entry: InputEntry, job: EmbedJob) -> None:
    if same_content(file, entry, job):
        return
    folder, _, name = file.path.rpartition("/")
    mend = "name all files, without --append"
    # a pattern that begins above the folder puts it into the names
    if entry.source != file.path and folder:
        mend = (
            f"name the folder by a pattern, as in --input '{folder[:-1]}[{folder[-1]}]/{name}', so"
            " that they differ"
        )
    raise OptionError(
        f"--append: the store has the relative path {file.relative} of {file.path} already, from"
        f" {entry.source}, with other content; {mend}"
    )


def still_there(items: list[PlannedFile]) -> list[PlannedFile]:
    """Return the files of a group that an appending run reads again, with the current versions of
    files of earlier runs.

    Raises OptionError if one of these is gone or has changed.
    """
    changed = next((item for item in items if not item.is_bare), items[0]).file.path
    found = []
    for item in items:
        if item.is_bare:
            why = f"{changed} has changed, and shares units with it"
            item = replace(item, file=_file_now(item.file, why))
        found.append(item)
    return found


def _file_now(file: InputFile, because: str, mend: str = "") -> InputFile:
    """Return an unchanged file of an earlier run with its current version."""
    entry = storage.storage_of(file.path).stat(file.path)
    fault = "is gone"
    if entry is not None:
        now = replace(file, size=entry.size, checksum=entry.checksum, version=entry.version)
        if now.version == file.version or checksum_of(now) == file.checksum:
            return replace(now, checksum=file.checksum)
        fault = "has changed too"
    raise OptionError(
        f"--append: {file.path} {fault}, and is to be read again, because {because}; name all"
        f" files, without --append{mend and ', '}{mend}"
    )
