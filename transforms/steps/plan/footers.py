"""What a plan needs to know from inside of input files; files that have not changed are not
opened.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from transforms import storage
from transforms.base.errors import SentenceBeamError
from transforms.corpus import InputFile, plan_file
from transforms.corpus.files import BROKEN, broken_link
from transforms.corpus.formats.registry import columns_of
from transforms.corpus.rows import blocks_of
from transforms.steps.options.job import EmbedJob
from transforms.store.runs.plan import PlannedFile

FILES_AT_ONCE = 16


def templates(job: EmbedJob) -> list[tuple[tuple[str, ...], str]]:
    """The columns that a run's templates name, with their options; those without any left out."""
    columns = job.columns
    named = [
        (columns.texts if columns.of_text else (), "--text-template"),
        (columns.of_prefix, "--chunk-prefix"),
    ]
    return [(names, option) for names, option in named if names]


def kept_types(file: InputFile, job: EmbedJob) -> tuple[tuple[str, str], ...]:
    """Type of each kept column; raises OptionError if the file lacks a named column or has it in
    a wrong type.
    """
    columns = job.columns
    text = columns.text if columns.of_text is None else None
    return columns_of(file).kept_types(text, columns.id, columns.keep, columns.kinds)


def read_footer(item: PlannedFile, job: EmbedJob) -> PlannedFile:
    """The file opened: the types of its kept columns, and its spans."""
    kept = kept_types(item.file, job)
    columns = job.columns
    there = columns_of(item.file)
    spans = plan_file(
        item.file, columns.text if columns.of_text is None else columns.texts, job.run.unit_tokens
    )
    keys = None
    if columns.keep or templates(job):
        keys = there.existing(columns.keep)
    for names, option in templates(job):
        named = there.template_names(names, option)
        if named is None or keys is None:
            keys = None
        else:
            keys = (*keys, *named)
    open_types = there.open_types(columns.keep, columns.kinds)
    found = replace(
        item, carried=(), spans=tuple(spans), kept=kept, keys=keys, open_types=open_types
    )
    return replace(found, is_rowless=not spans)


def check_readable(item: PlannedFile, job: EmbedJob) -> None:
    """Raise SentenceBeamError for a file to be embedded that breaks off or is damaged anywhere: it
    is read once.
    """
    for span in item.spans:
        deque(blocks_of(span, job.columns), maxlen=0)


def read_footers(planned: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """The plan with every file opened, those that had not been too; but for bad ones."""
    if all(item.kept is not None or item.bad for item in planned):
        return planned
    with ThreadPoolExecutor(FILES_AT_ONCE) as executor:
        return list(
            executor.map(lambda item: read_footer(item, job) if item.is_unopened else item, planned)
        )


def checksum_of(file: InputFile) -> str:
    """The checksum of an input's content. Raises SentenceBeamError for a file that may not be read
    or is gone.
    """
    if file.version == BROKEN:
        raise broken_link(file.path)
    try:
        return storage.checksum_of(file.entry)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | PermissionError) and not storage.is_local(
            file.path
        ):
            raise  # a connection that broke: an engine tries again
        raise SentenceBeamError(
            f"{file.path} cannot be read ({error.strerror or error}); mend that or leave it out of"
            " --input"
        ) from error
