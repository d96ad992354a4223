"""Facts that a plan needs from inside of input files; unchanged files are not opened."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.corpus import InputFile, plan_file
from sentence_beam.transforms.corpus.collection_rows import set_cut
from sentence_beam.transforms.corpus.files import BROKEN, make_link_error
from sentence_beam.transforms.corpus.first_bytes import check_first_bytes
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.corpus.rows import read_blocks
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files

FILES_AT_ONCE = 16


def list_templates(job: EmbedJob) -> list[tuple[tuple[str, ...], str]]:
    """Return the columns that a run's templates name, with the option of each template."""
    columns = job.columns
    named = []
    if columns.of_text and columns.texts:
        named.append((columns.texts, cite("text_template")))
    if columns.of_prefix:
        named.append((columns.of_prefix, cite("chunk_prefix")))
    return named


def read_kept_types(file: InputFile, job: EmbedJob) -> tuple[tuple[str, str], ...]:
    """Return the code of the type of each kept column that the file has.

    Raises OptionError if the file lacks the text or the ids, or has a column in a wrong type.
    """
    return open_columns(file).kept_types(job.columns)


def open_file(file: InputFile, job: EmbedJob) -> OpenedFile:
    """Open a file; returns its spans and the types of its kept columns.

    Raises OptionError if it lacks the text or the ids, or has a column in a wrong type.
    """
    check_first_bytes(file)
    kept = read_kept_types(file, job)
    columns = job.columns
    there = open_columns(file)
    text: str | tuple[str, ...] = columns.text if columns.of_text is None else columns.texts
    file = set_cut(file, text, job.run.unit_tokens)
    spans = tuple(plan_file(file, text, job.run.unit_tokens))
    if not spans:  # of no row: its columns may be of any type
        return OpenedFile(file)
    keys = None
    if columns.keep or list_templates(job):
        named = (name for names, _ in list_templates(job) for name in names)
        keys = there.find_existing((*columns.keep, *named))
    return OpenedFile(file, spans, kept, keys, there.lacking(columns.keep))


def open_rows(files: pa.Table, job: EmbedJob) -> pa.Table:
    """Return the rows `PLANNED` of files, all of them opened, in threads."""
    named = list_input_files(files, job.syntax)
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        rows = list(pool.map(lambda file: open_file(file, job).row(), named))
    return make_planned_rows(
        [row | {"ms": ms} for row, ms in zip(rows, files.column("ms").to_pylist(), strict=True)]
    )


def check_readable(opened: OpenedFile, job: EmbedJob) -> None:
    """Read a file once; raise SentenceBeamError if it breaks off or is damaged anywhere."""
    for span in opened.spans:
        deque(read_blocks(span, job.columns), maxlen=0)


def compute_checksum(file: InputFile) -> str:
    """Return the checksum of a file's content. Raises SentenceBeamError if it may not be read or
    is gone.
    """
    if file.version == BROKEN:
        raise make_link_error(file.path)
    try:
        return storage.checksum_of(file.entry)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | PermissionError) and not storage.is_local(
            file.path
        ):
            raise  # a connection that broke: an engine tries again
        raise SentenceBeamError(
            f"{file.path} cannot be read ({error.strerror or error}); mend that or leave it out of"
            f" {cite('input')}"
        ) from error
