"""Fine-tuning of sentence encoders by sentence-transformers' trainer."""

from transforms.training.options import TrainOptions as TrainOptions
