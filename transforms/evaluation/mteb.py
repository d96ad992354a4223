"""Encoders in MTEB: `mteb.evaluate(MtebEncoder(encoder), tasks)` scores a pooler or a calibration
on its tasks.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.base.errors import MissingExtraError
from transforms.base.extras import pip_line
from transforms.encoder.encoder import Encoder
from transforms.space.st_modules import DOCUMENT, QUERY

try:
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ModelMeta
    from mteb.types import PromptType
except ImportError as error:
    raise MissingExtraError(f"MTEB is not installed: {pip_line('mteb')}") from error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata


class MtebEncoder(AbsEncoder):
    """An encoder as a model of MTEB; its revision is the id of the space, under which MTEB keeps
    results.

    `queries` is an encoder with the prompt for queries, where they have one of their own; tasks'
    prompts are not used.
    """

    def __init__(self, encoder: Encoder, queries: Encoder | None = None) -> None:
        self._encoder, self._queries = encoder, queries or encoder
        space = encoder.space
        own = {"embed_dim": encoder.dim, "max_tokens": space.max_tokens}
        self.mteb_model_meta = ModelMeta.create_empty(
            {"name": f"sentence-beam/{space.id[:16]}", "revision": self._revision, **own}
        )

    @property
    def _revision(self) -> str:
        """The id of the space, and that of queries where it is another."""
        ids = dict.fromkeys([self._encoder.space.id, self._queries.space.id])
        return "-".join(ids)

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
        """The vectors float32 [n, dim] of the texts in batches that have them under `text`."""
        texts = [text for batch in inputs for text in batch["text"]]
        asked = prompt_type == PromptType.query
        encoder = self._queries if asked else self._encoder
        return encoder.encode(texts, route=QUERY if asked else DOCUMENT)
