"""Rows that were erased from the store: if they return, they are rejected by a keyed hash."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from sentence_beam.transforms.corpus import Rejected, UnitRows
from sentence_beam.transforms.corpus.pieces import take_rows
from sentence_beam.transforms.corpus.rows import FORGOTTEN, Parts
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.embed.inputs import hash_inputs
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.forgetting.hashes import Returning, returning


def drop_erased(rows: UnitRows, job: EmbedJob) -> UnitRows:
    """Return rows that are not cut yet, the erased ones among their rejects.

    Rows that are rejected for another reason are compared first. For documents whose vector will be
    the mean of their pieces see `drop_erased_means`.
    """
    returning = _read_returning(job)
    if returning is None:
        return rows
    texts: list[bytes | None] = [None] * len(rows.ids)
    if returning.texts and job.chunks.combine != "mean":
        texts = [*row_hashes(rows.texts)]
    rows = replace(rows, rejects=[compare_reject(reject, returning) for reject in rows.rejects])
    return _reject_erased(rows, returning, texts)


def drop_erased_means(rows: UnitRows, job: EmbedJob) -> UnitRows:
    """Return documents in parts, without the erased ones if these are known by their text.

    The row hash of such a document covers its pieces, which are known only now.
    """
    returning = _read_returning(job)
    if returning is None or not returning.texts:
        return rows
    return _reject_erased(rows, returning, hash_inputs(rows))


def _read_returning(job: EmbedJob) -> Returning | None:
    forgotten = job.run.forgotten
    return returning(job.root, forgotten) if forgotten is not None else None


def _reject_erased(rows: UnitRows, returning: Returning, texts: Iterable[bytes | None]) -> UnitRows:
    names = [returning.find(row_id, text) for row_id, text in zip(rows.ids, texts, strict=True)]
    erased = [make_erased_row(name) for name in names if name is not None]
    if not erased:
        return rows
    kept = np.flatnonzero([name is None for name in names])
    parts = rows.parts
    if parts is not None:
        parts = Parts(
            [parts.texts[place] for place in kept], [parts.tokens[place] for place in kept]
        )
    left = take_rows(rows, kept)
    return replace(left, parts=parts, rejects=[*rows.rejects, *erased])


def compare_reject(reject: Rejected, returning: Returning) -> Rejected:
    """Return a rejected row, or in its place that of an erased one.

    If its id or its whole text cannot be compared, nothing of its text is kept.
    """
    name = returning.find(reject.id, reject.text)
    if name is not None:
        return make_erased_row(name)
    if returning.texts or reject.id is None:
        return replace(reject, excerpt="")
    return reject


def make_erased_row(name: str) -> Rejected:
    """Return the reject of an erased row, which has the keyed hash alone: no id, place or text."""
    return Rejected(name, 0, FORGOTTEN, "", "")
