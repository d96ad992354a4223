"""Spans that take one worker long to read: it writes their units to files, others embed them."""

from collections.abc import Iterator

from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus import Span, UnitRows, read_span
from sentence_beam.transforms.corpus.unit_files import UnitFile, pack_rows, unpack_rows
from sentence_beam.transforms.steps.embed.cutting import cut_into_pieces, read_units
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store import layout

UNITS_PER_ELEMENT = 4  # enough to overlap read, encode and write


def cut_long(span: Span, job: EmbedJob) -> Iterator[list[UnitFile]]:
    """Write the units of a span to files of the run, and yield these, a few at a time.

    The units are those that `read_units` yields. Raises the errors of reading files.
    """
    if _cuts_later(job):
        units = read_span(span, job.columns, job.run.unit_tokens)
    else:
        units = read_units([span], job)
    unit_files: list[UnitFile] = []
    for rows in units:
        path = storage.join(job.root, layout.unit_rows(job.run.id, rows.name))
        storage.storage_of(path).put_if_absent(path, pack_rows(rows))
        unit_files.append(UnitFile(rows.name, span.file, rows.start, rows.stop, path))
        if len(unit_files) == UNITS_PER_ELEMENT:
            yield unit_files
            unit_files = []
    if unit_files:
        yield unit_files


def _cuts_later(job: EmbedJob) -> bool:
    """Whether documents are cut where they are embedded, each unit into one."""
    return bool(job.chunks.in_pooled)


def read_unit_files(files: list[UnitFile], job: EmbedJob) -> Iterator[UnitRows]:
    """Yield the units of files that `cut_long` wrote."""
    for item in files:
        rows = unpack_rows(item, storage.read_bytes(item.path))
        if _cuts_later(job):
            rows = cut_into_pieces(rows, job)
        yield rows
