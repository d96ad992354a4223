"""From texts to vectors: load a model, tokenize, batch, run the forward pass, pool and finish."""

from transforms.base.imports import uncollected

with uncollected():
    from transforms.encoder.batches import BatchStats, UnitBatches
    from transforms.encoder.devices import Passing
    from transforms.encoder.encoder import Encoder
    from transforms.encoder.late import PiecesUnit
    from transforms.encoder.output import Embedded
    from transforms.encoder.tokenize import Tokenized
    from transforms.encoder.windows import Windows

__all__ = [
    "BatchStats",
    "Embedded",
    "Encoder",
    "Passing",
    "PiecesUnit",
    "Tokenized",
    "UnitBatches",
    "Windows",
]
