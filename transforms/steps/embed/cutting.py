"""The documents of a run cut into pieces, by the model's tokenizer, without the model."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.corpus import UnitRows, read_span
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan, read_group
from sentence_beam.transforms.corpus.pieces import (
    as_pieces,
    cut_texts,
    make_prefix,
    number_units,
    split,
    take_rows,
)
from sentence_beam.transforms.corpus.row_blocks import EMPTY_TEXT
from sentence_beam.transforms.corpus.rows import Parts
from sentence_beam.transforms.space import Recipe, Space
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.embed.erased import drop_erased, drop_erased_means
from sentence_beam.transforms.steps.options.job import EmbedJob

if TYPE_CHECKING:
    from sentence_beam.transforms.corpus.chunks.cut import Cutter, Pieces
    from sentence_beam.transforms.encoder.tokenize import TextTokenizer


def read_units(spans: list[AnySpan], job: EmbedJob) -> Iterator[UnitRows]:
    """Yield the units of the spans, in order; rows are pieces if the run cuts documents."""
    for span in spans:
        units = read_unerased(span, job)
        if job.chunks.cuts:
            units = number_units(_cut(units, job), span.name)
        yield from units


def read_unerased(span: AnySpan, job: EmbedJob) -> Iterator[UnitRows]:
    """Yield the rows of a span in units; rows that were erased from the store are rejected."""
    if isinstance(span, GroupSpan):
        units = read_group(span, job.columns, job.run.unit_tokens)
    else:
        units = read_span(span, job.columns, job.run.unit_tokens)
    return (drop_erased(rows, job) for rows in units)


def _cut(units: Iterator[UnitRows], job: EmbedJob) -> Iterator[UnitRows]:
    for rows in units:
        cut = cut_into_pieces(rows, job)
        if cut.parts is None and cut.windows is None:
            yield from split(cut, job.run.unit_tokens)
        else:
            yield cut


def cut_into_pieces(rows: UnitRows, job: EmbedJob) -> UnitRows:
    """Return the rows, or their pieces, or the rows with the model's input for them.

    Raises OptionError naming a document whose prefix leaves no room for a piece.
    """
    if not job.chunks.cuts:
        return rows
    rows, pieces = _reject_unseen(rows, cut_texts(rows, load_job_cutter(job)))
    text_column = job.columns.text if job.columns.of_text is None else None
    tokenizer = load_tokenizer(job.recipe, job.run.space)
    cut = prepare_inputs(rows, pieces, job.chunks, tokenizer, text_column)
    return cut if cut.parts is None else drop_erased_means(cut, job)


def _reject_unseen(rows: UnitRows, cut: "list[Pieces]") -> "tuple[UnitRows, list[Pieces]]":
    """Return the documents that have a piece, and their pieces; the others are rejected."""
    unseen = [place for place, pieces in enumerate(cut) if not pieces.spans]
    if not unseen:
        return rows, cut
    rejects = [*rows.rejects, *(rows.reject(place, EMPTY_TEXT) for place in unseen)]
    seen = np.flatnonzero([bool(pieces.spans) for pieces in cut])
    left = replace(take_rows(rows, seen), rejects=rejects)
    return left, [cut[place] for place in seen.tolist()]


def prepare_inputs(
    rows: UnitRows,
    cut_texts: "list[Pieces]",
    chunks: ChunksSpec,
    tokenizer: "TextTokenizer",
    text_column: str | None = None,
) -> UnitRows:
    """Return the pieces of the rows, or the rows with the model's input for them.

    A kept column of that name gets each piece's text.
    """
    if chunks.combine == "mean":
        return replace(rows, parts=_make_parts(rows, cut_texts))
    cut = as_pieces(rows, cut_texts, text_column)
    if chunks.kind != "late" or not rows.ids:
        return cut
    from sentence_beam.transforms.encoder.windows import make_windows

    spans = [pieces.spans for pieces in cut_texts]
    return replace(
        cut, windows=make_windows(tokenizer, rows.texts, spans, chunks.window, chunks.overlap)
    )


def _make_parts(rows: UnitRows, pieces: "list[Pieces]") -> Parts:
    texts = [
        [
            make_prefix(rows, n, above) + rows.texts[n][s:e]
            for (s, e), above in zip(piece.spans, piece.headings, strict=True)
        ]
        for n, piece in enumerate(pieces)
    ]
    return Parts(texts, [piece.tokens for piece in pieces])


def load_job_cutter(job: EmbedJob) -> "Cutter":
    """Return the cutter of a run's documents."""
    return load_cutter(job.recipe, job.run.space, job.chunks)


@functools.lru_cache(2)
def load_cutter(recipe: Recipe, space: Space, chunks: ChunksSpec) -> "Cutter":
    """Return the cutter of documents with the tokenizer of a recipe's model."""
    from sentence_beam.transforms.corpus.chunks.cut import Cutter

    tokenizer = load_tokenizer(recipe, space)
    return Cutter(chunks, tokenizer.whole, tokenizer.room, space.prompt)


@functools.lru_cache(2)
def load_tokenizer(recipe: Recipe, space: Space) -> "TextTokenizer":
    """Return the tokenizer of a recipe's model, without the model."""
    from sentence_beam.transforms.encoder.tokenize import TextTokenizer

    return TextTokenizer(recipe.files(), space.prompt, space.max_tokens, space.pooler["parts"][0])


def list_piece_texts(texts: list[str], job: EmbedJob) -> list[str]:
    """Return the texts, or their pieces without prefixes."""
    if not job.chunks.cuts:
        return texts
    cut = load_job_cutter(job).cut(texts)
    return [
        text[start:end]
        for text, pieces in zip(texts, cut, strict=True)
        for start, end in pieces.spans
    ]
