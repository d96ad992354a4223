"""Chunks: documents -> their pieces."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.shared import Shared

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.values import StrPath, as_text
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.space.model_files import DEFAULT_MODEL
from sentence_beam.transforms.space.recipe import Recipe
from sentence_beam.transforms.steps.embed.cutting import load_cutter
from sentence_beam.transforms.steps.embed.row_shapes import check_keys

if TYPE_CHECKING:
    from sentence_beam.transforms.corpus import Cutter

PIECE_TYPES = {"piece": int, "pieces": int, "start": int, "end": int, "headings": str}


def list_fields(element_type: Any) -> dict[str, Any] | None:
    """Return the fields of rows with a schema, with their types; None for other elements."""
    is_row = isinstance(element_type, RowTypeConstraint)
    row = element_type if is_row else RowTypeConstraint.from_user_type(element_type)
    return None if row is None else dict(row._fields)


def make_row_type(fields: Mapping[str, Any], added: Mapping[str, Any]) -> RowTypeConstraint:
    """Return the type of rows with added fields."""
    return RowTypeConstraint.from_fields([*{**fields, **added}.items()])


class Chunks(beam.PTransform):
    """Documents, as dicts or `beam.Row`s with a text, -> one element for each piece, in order.

    A piece has the fields of its document, its own text, and `piece` (from 0), `pieces`, `start`
    and `end` in characters, `headings`. `spec` as `--chunks` takes it; `text` names the field;
    tokens are counted with the tokenizer of `model`. A blank document has no piece. Raises
    OptionError for a malformed SPEC, or one that cuts nothing.
    """

    def __init__(self, spec: str = "budget", *, model: StrPath = DEFAULT_MODEL, text: str = "text"):
        super().__init__()
        self._chunks = ChunksSpec.parse(spec)
        if not self._chunks.cuts:
            raise OptionError(f"chunks {spec!r} cuts nothing; say budget or sentences")
        self._model = as_text(model)
        self._text = text

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        fields = list_fields(documents.element_type)
        any_fields = typehints.Dict[str, typehints.Any]
        kind = any_fields if fields is None else make_row_type(fields, PIECE_TYPES)
        cut = beam.ParDo(CutFn(self._chunks, self._model, self._text, Shared()))
        return documents | "Cut" >> cut.with_output_types(kind)


class CutFn(beam.DoFn):
    """A document -> its pieces; one tokenizer a process."""

    def __init__(self, chunks: ChunksSpec, model: str, text: str, shared: Shared):
        self._chunks = chunks
        self._model = model
        self._text = text
        self._shared = shared

    def setup(self) -> None:
        self._cutter: Cutter = self._shared.acquire(self._load)

    def process(self, document: Any) -> Iterator[Any]:
        """Yield the document's fields with the text and the place of each piece."""
        named = hasattr(document, "_asdict")
        fields = document._asdict() if named else document
        check_keys(fields)
        text = fields[self._text]
        pieces = self._cutter.cut([text])[0]
        for piece, ((start, end), headings) in enumerate(
            zip(pieces.spans, pieces.headings, strict=True)
        ):
            place = {
                "piece": piece,
                "pieces": len(pieces.spans),
                "start": start,
                "end": end,
                "headings": headings,
            }
            made = {**fields, self._text: text[start:end], **place}
            yield beam.Row(**made) if named else made

    def _load(self) -> "Cutter":
        recipe = Recipe(self._model)
        files = recipe.files()
        space = recipe.as_exported(files).for_rows(files).space(files)
        return load_cutter(recipe, space, self._chunks)
