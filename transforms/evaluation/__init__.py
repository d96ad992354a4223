"""Score methods on tasks: read tasks, encode with many poolers, compute metrics and intervals."""

from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions

__all__ = ["EvaluateOptions"]
