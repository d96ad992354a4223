"""From texts to vectors: load a model, tokenize, batch, run the forward pass, pool and finish."""

from sentence_beam.transforms.base.imports import uncollected

with uncollected():
    from sentence_beam.transforms.encoder.batches import BatchStats, UnitBatches
    from sentence_beam.transforms.encoder.devices import Passing
    from sentence_beam.transforms.encoder.encoder import Encoder
    from sentence_beam.transforms.encoder.finish_vectors import Embedded
    from sentence_beam.transforms.encoder.late import PiecesUnit
    from sentence_beam.transforms.encoder.tokenize import Tokenized
    from sentence_beam.transforms.encoder.windows import Windows

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
