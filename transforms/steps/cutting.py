"""The documents of a run cut into pieces, by the model's tokenizer, without the model."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transforms.corpus import Span, UnitRows, read_span
from transforms.corpus.pieces import cut_rows, numbered, split
from transforms.space import Recipe, Space
from transforms.space.chunks import Chunks
from transforms.steps.job import EmbedJob

if TYPE_CHECKING:
    from transforms.corpus.chunks.cut import Cutter


def read_units(spans: list[Span], job: EmbedJob) -> Iterator[UnitRows]:
    """The units of the spans, in order; their rows are pieces where the run cuts documents."""
    for span in spans:
        units = read_span(span, job.columns, job.run.unit_tokens)
        yield from units if job.chunks == "none" else numbered(_cut(units, job), span.name)


def _cut(units: Iterator[UnitRows], job: EmbedJob) -> Iterator[UnitRows]:
    for rows in units:
        yield from split(pieces_of(rows, job), job.run.unit_tokens)


def pieces_of(rows: UnitRows, job: EmbedJob) -> UnitRows:
    """The rows, or their pieces. Raises OptionError naming a document whose prefix leaves no room for a piece."""
    if job.chunks == "none":
        return rows
    return cut_rows(rows, cutter_of(job), job.columns.text if job.columns.of_text is None else None)


def cutter_of(job: EmbedJob) -> "Cutter":
    """What cuts the documents of a run."""
    return _cutter(job.recipe, job.run.space, job.chunks)


@functools.lru_cache(2)
def _cutter(recipe: Recipe, space: Space, chunks: str) -> "Cutter":
    from transforms.corpus.chunks.cut import Cutter
    from transforms.encoder.tokenize import TextTokenizer

    tokenizer = TextTokenizer(recipe.files(), space.prompt, space.max_tokens, space.pooler["parts"][0])
    return Cutter(Chunks.parse(chunks), tokenizer.whole, tokenizer.room, space.prompt)


def texts_of_pieces(texts: list[str], job: EmbedJob) -> list[str]:
    """The texts, or their pieces without anything before them."""
    if job.chunks == "none":
        return texts
    cut = cutter_of(job).cut(texts)
    return [text[start:end] for text, pieces in zip(texts, cut, strict=True) for start, end in pieces.spans]
