"""Run MTEB's tasks: `mteb.evaluate(MtebEncoder(encoder), tasks)` scores a pooler or calibration."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.base.errors import MissingExtraError
from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.encoder.encoder import Encoder
from sentence_beam.transforms.space.st_modules import DOCUMENT, QUERY

try:
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ModelMeta
    from mteb.types import PromptType
except ImportError as error:
    raise MissingExtraError(f"MTEB is not installed: {format_pip_line('mteb')}") from error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata


class MtebEncoder(AbsEncoder):
    """An encoder as a model of MTEB, which keeps results under the id of the space.

    `queries` and `documents` are encoders with the prompts for the texts of searches, if these have
    their own. Prompts of the tasks are not used.
    """

    def __init__(
        self, encoder: Encoder, queries: Encoder | None = None, documents: Encoder | None = None
    ) -> None:
        self._encoder = encoder
        self._queries = queries or encoder
        self._documents = documents or encoder
        space = encoder.space
        encoders = (encoder, self._queries, self._documents)
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"sentence-beam/{space.id[:16]}",
                "revision": "-".join(dict.fromkeys(each.space.id for each in encoders)),
                "embed_dim": encoder.dim,
                "max_tokens": space.max_tokens,
            }
        )

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Return the vectors float32 [n, dim] of the texts under `text` in batches."""
        texts = [text for batch in inputs for text in batch["text"]]
        if prompt_type == PromptType.query:
            return self._queries.encode(texts, route=QUERY)
        if prompt_type == PromptType.document:
            return self._documents.encode(texts, route=DOCUMENT)
        return self._encoder.encode(texts, route=DOCUMENT)
