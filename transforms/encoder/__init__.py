"""From texts to vectors: loading a model, tokenizing, batching, the forward pass, and what follows
the pooler.
"""

from transforms.base.imports import uncollected

with uncollected():
    from transforms.encoder.batches import BatchStats, UnitBatches
    from transforms.encoder.encoder import Embedded, Encoder
    from transforms.encoder.late import PiecesUnit, Windows
    from transforms.encoder.tokenize import Tokenized

__all__ = ["BatchStats", "Embedded", "Encoder", "PiecesUnit", "Tokenized", "UnitBatches", "Windows"]
