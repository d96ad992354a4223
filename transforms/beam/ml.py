"""Beam's own interfaces for models around the encoder: RunInference and MLTransform.

Importing this imports torch, since Beam's do.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, Unpack

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.ml.transforms.base import (
    EmbeddingsManager,
    EmbeddingTypeAdapter,
    _TextEmbeddingHandler,
)

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Machine, Recipe, Space
from sentence_beam.transforms.space.model_files import DEFAULT_MODEL
from sentence_beam.transforms.steps.embed.element_rows import RowsJob
from sentence_beam.transforms.steps.embed.row_shapes import find_faults

SHOWN = 60  # characters of a text in an error


class EncoderOptions(TypedDict, total=False):
    """The options of an encoder beside its model, as `EmbedRows` takes them."""

    pooler: str
    dtype: str
    calibration: StrPath | None
    prompt: str | None
    prompt_name: str | None
    max_tokens: int | None
    normalize: bool | None
    truncate_dim: int | None
    revision: str | None


class EncoderModelHandler(ModelHandler[str, PredictionResult, Encoder]):
    """The encoder as a handler for `RunInference`.

    Texts -> PredictionResults whose `inference` is float32 [d]. They are rows: without `prompt`
    they get the model's for documents. A batch is cut by tokens again inside, so that large ones
    (`min_batch_size`) are good. An element that `EmbedRows` would reject, such as an empty text,
    fails its batch with the same reason. Workers on other machines need files that make the same
    space, or loading the model fails. Raises OptionError for options or a model that do not work.
    """

    def __init__(
        self,
        model: StrPath = DEFAULT_MODEL,
        *,
        min_batch_size: int | None = None,
        max_batch_size: int | None = None,
        device: str = "auto",
        **options: Unpack[EncoderOptions],
    ):
        super().__init__(min_batch_size=min_batch_size, max_batch_size=max_batch_size)
        job = RowsJob.from_recipe(
            Recipe.from_options({"model": model, **options}), Machine(device), ""
        )
        # Plain values: MLTransform keeps handlers as JSON.
        self._recipe = job.recipe.to_json()
        self._device = device
        self._space = job.space.to_json()

    def load_model(self) -> Encoder:
        """Return the encoder.

        Raises SpaceMismatchError if the files here make another space.
        """
        space = Space.from_json(self._space)
        return RowsJob(Recipe.from_options(self._recipe), Machine(self._device), "", space).load()

    def run_inference(
        self, batch: Sequence[str], model: Encoder, inference_args: dict[str, Any] | None = None
    ) -> Iterable[Any]:
        """Return the texts with their vectors. Raises OptionError for a text that has none."""
        vectors = _encode(batch, model)
        return [
            PredictionResult(text, vector, self._space["id"])
            for text, vector in zip(batch, vectors, strict=True)
        ]

    def get_num_bytes(self, batch: Sequence[str]) -> int:
        """Return the characters of the texts; Beam would pickle them to know."""
        return sum(map(len, batch))

    def get_metrics_namespace(self) -> str:
        """Return the namespace of Beam's metrics of inference."""
        return "sentence_beam"


class VectorsHandler(EncoderModelHandler):
    """The same with bare vectors float32 [n, d], as `MLTransform` needs them."""

    def run_inference(
        self, batch: Sequence[str], model: Encoder, inference_args: dict[str, Any] | None = None
    ) -> np.ndarray:
        """Return the vectors of the texts. Raises OptionError for a text that has none."""
        return _encode(batch, model)


def _encode(texts: Sequence[str], model: Encoder) -> np.ndarray:
    check_texts(texts)
    return model.encode(list(texts))


def check_texts(texts: Sequence[Any]) -> None:
    """Raise OptionError for texts that `EmbedRows` would reject, with its reason."""
    reasons = find_faults(list(texts), "text")
    for place, reason in reasons.items():
        raise OptionError(
            f"{len(reasons):,} of {len(texts):,} texts cannot be embedded, first"
            f" {repr(texts[place])[:SHOWN]} ({reason}); leave them out before"
        )


class EmbedItems(beam.PTransform):
    """Items -> the same with vectors, for `MLTransform`.

    With exception handling, an item whose text `EmbedRows` would reject fails alone. `texts_of`
    returns the texts of several items.
    """

    def __init__(self, inference: RunInference, texts_of: Callable[[Sequence[Any]], Sequence[Any]]):
        super().__init__()
        self._inference = inference
        self._texts_of = texts_of
        self._handling: dict[str, Any] | None = None

    def with_exception_handling(self, **handling: Any) -> "EmbedItems":
        """Return the step with a second output: (failed items, error)."""
        self._handling = handling
        return self

    def expand(self, items: beam.PCollection) -> Any:
        check = beam.Map(self._check_item).with_output_types(items.element_type)
        if self._handling is None:
            return items | "Check" >> check | self._inference
        good, bad = items | "Check" >> check.with_exception_handling(**self._handling)
        made, failed = good | self._inference.with_exception_handling(**self._handling)
        return made, (bad, failed.failed_inferences) | beam.Flatten()

    def _check_item(self, item: Any) -> Any:
        check_texts(self._texts_of([item]))
        return item


class TextEmbeddings(EmbeddingsManager):
    """The encoder for `MLTransform`: each of the `columns` becomes its vector, floats.

    Its texts are rows: without `prompt` they get the model's for documents. A text that `EmbedRows`
    would reject fails, with exception handling its item alone.

    Instead of columns, a `type_adapter` may name the texts, as `create_text_adapter()` of
    `apache_beam.ml.rag` does for its EmbeddableItems. The artifact has the space; a job that reads
    it later and loads another model fails.
    """

    def __init__(
        self,
        model: StrPath = DEFAULT_MODEL,
        *,
        columns: list[str] | None = None,
        type_adapter: EmbeddingTypeAdapter | None = None,
        min_batch_size: int | None = None,
        max_batch_size: int | None = None,
        device: str = "auto",
        **options: Unpack[EncoderOptions],
    ):
        super().__init__(
            columns=columns,
            type_adapter=type_adapter,
            min_batch_size=min_batch_size,
            max_batch_size=max_batch_size,
        )
        self._handler = VectorsHandler(
            model,
            min_batch_size=min_batch_size,
            max_batch_size=max_batch_size,
            device=device,
            **options,
        )

    def get_model_handler(self) -> ModelHandler:
        """Return the handler of the encoder."""
        return self._handler

    def get_ptransform_for_processing(self, **kwargs: Any) -> beam.PTransform:
        """Return the step that embeds."""
        inference = RunInference(_TextEmbeddingHandler(self), inference_args=self.inference_args)
        return EmbedItems(inference, self.type_adapter.input_fn)
