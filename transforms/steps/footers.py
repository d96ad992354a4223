"""What a plan needs to know from inside of input files; files that have not changed are not opened."""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from transforms.corpus import InputFile, plan_file
from transforms.corpus import columns as corpus_columns
from transforms.corpus.row_blocks import blocks_of
from transforms.errors import OptionError
from transforms.steps.job import EmbedJob
from transforms.store.plan import PlannedFile

FILES_AT_ONCE = 16


def templates(job: EmbedJob) -> list[tuple[tuple[str, ...], str]]:
    """The columns that a run's templates name, with their options; those without any left out."""
    columns = job.columns
    named = [(columns.texts if columns.of_text else (), "--text-template"), (columns.of_prefix, "--chunk-prefix")]
    return [(names, option) for names, option in named if names]


def kept_types(file: InputFile, job: EmbedJob) -> tuple[tuple[str, str], ...]:
    """Type of each kept column; raises OptionError where the file lacks a named column or has it in a wrong type."""
    columns = job.columns
    text = columns.text if columns.of_text is None else None
    return corpus_columns.kept_types(file, text, columns.id, columns.keep)


def read_footer(item: PlannedFile, job: EmbedJob) -> PlannedFile:
    """The file opened: the types of its kept columns, and its spans."""
    kept = kept_types(item.file, job)
    columns = job.columns
    spans = plan_file(item.file, columns.text if columns.of_text is None else columns.texts, job.run.unit_tokens)
    keys = corpus_columns.keys_found(item.file, columns.keep) if columns.keep or templates(job) else None
    for names, option in templates(job):
        named = corpus_columns.template_names_found(item.file, names, option)
        keys = None if named is None or keys is None else (*keys, *named)
    return replace(item, carried=(), spans=tuple(spans), kept=kept, keys=keys)


def check_readable(item: PlannedFile, job: EmbedJob) -> None:
    """Raise SentenceBeamError for a file to be embedded that breaks off or is damaged anywhere: it is read once."""
    for span in item.spans:
        deque(blocks_of(span, job.columns), maxlen=0)


def read_footers(planned: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """The plan with every file opened, those that had not been too; but for bad ones."""
    if all(item.kept is not None or item.bad for item in planned):
        return planned
    with ThreadPoolExecutor(FILES_AT_ONCE) as executor:
        return list(executor.map(lambda item: read_footer(item, job) if item.is_unopened else item, planned))


def check_types(planned: Iterable[PlannedFile], job: EmbedJob) -> None:
    """Raise OptionError where kept columns differ, or no file has them or those of a template.

    Of the files not opened, which agree, one is.
    """
    if not job.columns.keep and not templates(job):
        return
    items = list(planned)
    known = [item for item in items if item.kept is not None]
    other = next((item for item in items if item.kept is None), None)
    if not any(item.carried or item.kept is None for item in items):  # files that stay as they are have had them
        _check_keys(known, job)
    if known and other is not None:
        known.insert(0, replace(other, kept=kept_types(other.file, job)))
    for item in known[1:]:
        if item.kept != known[0].kept:
            raise OptionError(
                f"--keep-columns: {known[0].file.path} has {_types(known[0])}, {item.file.path} has {_types(item)}; "
                "cast them to one type"
            )


def _check_keys(opened: list[PlannedFile], job: EmbedJob) -> None:
    """Raise OptionError for a kept column, or one of a template, that no file has, as far as its first rows tell."""
    told = [item for item in opened if item.keys is not None]
    named = [(name, "--keep-columns") for name in job.columns.keep]
    named += [(name, option) for names, option in templates(job) for name in names]
    for name, option in named if told else ():
        if not any(name in (item.keys or ()) for item in told):
            raise corpus_columns.no_column(told[0].file, name, option)


def _types(item: PlannedFile) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in item.kept or ())
