"""Scores of methods on tasks: reading tasks, encoding with many poolers, metrics and how far they
can be believed.
"""

from transforms.evaluation.options import EvaluateOptions

__all__ = ["EvaluateOptions"]
