"""An encoder that costs nothing, for what is to be measured without the forward pass."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from sentence_beam.transforms.encoder.batches import BatchStats
from sentence_beam.transforms.encoder.finish_vectors import Embedded
from sentence_beam.transforms.encoder.tokenize import KnownTokens, Tokenized
from sentence_beam.transforms.pooling import Status
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.steps.embed import load_encoder as loading


class Stub:
    """An encoder that costs nothing: vectors made of nothing."""

    device_names = "cpu"

    def __init__(self, space: Space):
        self.space = space

    def tokenize(self, found: list[str]) -> Tokenized:
        """Two tokens for each text."""
        counts = np.full(len(found), 2, np.int32)
        offsets = np.arange(len(found) + 1, dtype=np.int64) * 2
        return Tokenized(
            np.zeros(2 * len(found), np.int32), offsets, counts, np.zeros(len(found), bool)
        )

    @property
    def text_tokenizer(self) -> "Stub":
        """The tokenizer, which is the stub too."""
        return self

    def find_unseen(self, tokenized: Tokenized) -> np.ndarray:
        """Return the places of texts without a token, of which there are none."""
        return np.empty(0, np.int64)

    def words(self, tokenized: Tokenized) -> KnownTokens:
        """Count all tokens as known."""
        return KnownTokens(tokenized.counts, np.zeros_like(tokenized.counts))

    def plan(self, tokenized: Tokenized) -> Tokenized:
        """The texts as they are."""
        return tokenized

    def start(self, tokenized: Tokenized, progress: Any = None, cancelled: Any = None) -> Tokenized:
        """The texts as they are."""
        return tokenized

    def finish(self, tokenized: Tokenized) -> Embedded:
        """Return the vectors of `embed`."""
        return self.embed(tokenized)

    def embed(self, tokenized: Tokenized, progress: Any = None) -> Embedded:
        """Vectors of length 1."""
        rows = len(tokenized.counts)
        vectors = np.zeros((rows, self.space.dim), np.float32)
        vectors[np.arange(rows), np.arange(rows) % self.space.dim] = 1
        status = np.full(rows, int(Status.OK), np.uint8)
        return Embedded(vectors, np.ones(rows, np.float32), None, status, BatchStats())


@contextlib.contextmanager
def stub_encoder() -> Iterator[None]:
    """No model is loaded inside."""
    load = loading.load_encoder
    loading.load_encoder = lambda job: Stub(job.run.space)
    try:
        yield
    finally:
        loading.load_encoder = load


def tiny_model(folder: Path, dim: int = 8) -> Path:
    """A model of so many dimensions, for its space alone."""
    tokenizer = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )
    sizes = {
        "hidden_size": dim,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": dim,
    }
    BertModel(BertConfig(vocab_size=64, max_position_embeddings=64, **sizes)).save_pretrained(
        folder
    )
    fast.save_pretrained(folder)
    return folder
