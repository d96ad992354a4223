"""Loading a model, tokenizing, batching, and the forward pass: texts -> vectors."""

from transforms.imports import uncollected

with uncollected():
    from transforms.encoder.batches import BatchStats
    from transforms.encoder.encoder import Embedded, Encoder
    from transforms.encoder.tokenize import Tokenized

__all__ = ["BatchStats", "Embedded", "Encoder", "Tokenized"]
