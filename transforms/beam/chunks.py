"""Chunks: documents -> their pieces."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.utils.shared import Shared

from transforms.errors import OptionError
from transforms.space.chunks import ChunksSpec
from transforms.space.model_files import DEFAULT_MODEL
from transforms.space.recipe import Recipe

if TYPE_CHECKING:
    from transforms.corpus import Cutter

Row = Mapping[str, Any]


class Chunks(beam.PTransform):
    """Documents, as mappings with a text, -> a mapping for each piece, in order.

    A piece has what its document has, its own text, and `piece` (from 0), `pieces`, `start` and `end` in characters,
    `headings`. `spec` as `--chunks` takes it; `text` names the field; the tokens are those of `model`. A blank document
    has no piece. Raises `OptionError` for a SPEC that is none, or that cuts nothing.
    """

    def __init__(self, spec: str = "budget", *, model: str = DEFAULT_MODEL, text: str = "text"):
        super().__init__()
        self._chunks = ChunksSpec.parse(spec)
        if not self._chunks.cuts:
            raise OptionError(f"chunks {spec!r} cuts nothing; say budget or sentences")
        self._model, self._text = model, text

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        return documents | "Cut" >> beam.ParDo(CutFn(self._chunks, self._model, self._text, Shared()))


class CutFn(beam.DoFn):
    """A document -> its pieces; one tokenizer a process."""

    def __init__(self, chunks: ChunksSpec, model: str, text: str, shared: Shared):
        self._chunks, self._model, self._text, self._shared = chunks, model, text, shared

    def setup(self) -> None:
        self._cutter: Cutter = self._shared.acquire(self._load)

    def process(self, document: Row) -> Iterator[dict[str, Any]]:
        text = document[self._text]
        found = self._cutter.cut([text])[0]
        for piece, ((start, end), headings) in enumerate(zip(found.spans, found.headings, strict=True)):
            place = {"piece": piece, "pieces": len(found.spans), "start": start, "end": end, "headings": headings}
            yield {**document, self._text: text[start:end], **place}

    def _load(self) -> "Cutter":
        from transforms.corpus import Cutter
        from transforms.encoder.tokenize import TextTokenizer

        files = Recipe(self._model).files()
        space = Recipe(self._model).space(files)
        tokenizer = TextTokenizer(files, space.prompt, space.max_tokens, space.pooler["parts"][0])
        return Cutter(self._chunks, tokenizer.whole, tokenizer.room, space.prompt)
