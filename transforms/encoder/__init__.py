"""From texts to vectors: load a model, tokenize, batch, run the forward pass, pool and finish.

Five modules run a model's blocks. `choose_runner` takes the first that serves model and device,
and tests it when the model is loaded: if it differs from `padded`, that is taken.

| module | models | device and dtype | texts of a batch |
|---|---|---|---|
| `packed` | the BERT family | CPU | packed, equally long ones together in attention |
| `varlen` | the BERT family | GPU, 16 bits, torch from 2.11 on | packed |
| `one_row` | others that take positions and another attention function | as `varlen` | in one row |
| `padded` | all | all | padded to the longest of the batch |
| `openvino_pass` | a quantised copy | CPU, for `--dtype int8` alone | padded |
"""

from sentence_beam.transforms.base.imports import pause_collector

with pause_collector():
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
