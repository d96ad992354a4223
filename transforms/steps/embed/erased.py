"""Rows that were erased from the store: if they return, they are rejected by a keyed hash."""

from dataclasses import replace

import numpy as np

from sentence_beam.transforms.corpus import Rejected, UnitRows
from sentence_beam.transforms.corpus.pieces import take_rows
from sentence_beam.transforms.corpus.rows import FORGOTTEN, Parts
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.embed.inputs import hashes_of
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.forgetting.hashes import Returning, returning


def without_erased(rows: UnitRows, job: EmbedJob) -> UnitRows:
    """Return rows that are not cut yet, the erased ones among their rejects.

    Rows that are rejected for another reason lose id and text too, if they are known by their id.
    For erased documents whose vector will be the mean of their pieces see `without_erased_means`.
    """
    known = _returning(job)
    if known is None or (not known.by_id and job.chunks.combine == "mean"):
        return rows
    if known.by_id:
        rows = replace(rows, rejects=[_without_id(reject, known) for reject in rows.rejects])
    texts = [b""] * len(rows.ids)
    if not known.by_id:
        texts = row_hashes(rows.texts)
    return _without(rows, known, texts)


def without_erased_means(rows: UnitRows, job: EmbedJob) -> UnitRows:
    """Return documents in parts, without the erased ones if these are known by their text.

    The row hash of such a document covers its pieces, which are known only now.
    """
    known = _returning(job)
    if known is None or known.by_id:
        return rows
    return _without(rows, known, hashes_of(rows))


def _returning(job: EmbedJob) -> Returning | None:
    if job.run.forgotten is None:
        return None
    key = bytes.fromhex(job.forget_key) if job.forget_key else None
    return returning(job.root, job.run.forgotten, key)


def _without(rows: UnitRows, known: Returning, texts: list[bytes]) -> UnitRows:
    names = [known.find(row_id, text) for row_id, text in zip(rows.ids, texts, strict=True)]
    erased = [erased_row(name) for name in names if name is not None]
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


def _without_id(reject: Rejected, known: Returning) -> Rejected:
    """Return a rejected row, of an erased one the keyed hash alone."""
    if reject.id is None:
        return reject
    name = known.find(reject.id, b"")
    if name is None:
        return reject
    return erased_row(name)


def erased_row(name: str) -> Rejected:
    """Return the reject of an erased row, which has the keyed hash alone: no id, place or text."""
    return Rejected(name, 0, FORGOTTEN, "", "")
