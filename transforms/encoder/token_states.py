"""Read the token states of texts, to examine a model itself: no pooler, no vectors."""

from collections.abc import Iterator

import numpy as np
import torch

from sentence_beam.transforms.encoder.batches import plan_batches
from sentence_beam.transforms.encoder.devices import resolve_device
from sentence_beam.transforms.encoder.forward import Forward
from sentence_beam.transforms.encoder.load import load_model
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.tokenize import TextTokenizer, Tokenized
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import TokenStates
from sentence_beam.transforms.space.model_files import ModelFiles

TOKENS_PER_BATCH = 1024


class StateReader:
    """A loaded model that returns the token states that `needs` names, batch by batch.

    Texts have no prompt and are cut at `max_tokens`; the pass is in float32.
    """

    def __init__(
        self, files: ModelFiles, needs: Needs, max_tokens: int | None, device: str
    ) -> None:
        self.tokenizer = TextTokenizer(files, "", max_tokens)
        model = load_model(files, "float32", resolve_device(device))
        self._forward = Forward(files, model, self.tokenizer, needs)

    def states(self, tokenized: Tokenized) -> Iterator[tuple[np.ndarray, TokenStates]]:
        """Yield the places of a batch's texts, int64 [n], and their token states, longest first."""
        together = self._forward.together
        budget = 1 if together is BatchSharing.ALONE else TOKENS_PER_BATCH
        for batch in plan_batches(tokenized, budget, equal=together is BatchSharing.EQUAL):
            with torch.inference_mode():
                yield batch.rows, self._forward(batch)


def load_embedding_matrix(files: ModelFiles) -> np.ndarray:
    """Load the rows of a model's token-embedding matrix, float32 [V, E]."""
    model = load_model(files, "float32", torch.device("cpu"))
    return model.get_input_embeddings().weight.detach().numpy()  # type: ignore[operator]
