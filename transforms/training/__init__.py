"""Fine-tuning of sentence encoders by sentence-transformers' trainer."""

from sentence_beam.transforms.training.train_options import TrainOptions as TrainOptions
