"""Score methods on tasks: read tasks, encode with many poolers, compute metrics and intervals."""

from transforms.evaluation.options import EvaluateOptions

__all__ = ["EvaluateOptions"]
