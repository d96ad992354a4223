"""What a collection of vectors is like. Pure numpy."""

from transforms.calibration.quality import Moments, alignment, cosines, mean_cosine, pearson, spearman, uniformity

__all__ = ["Moments", "alignment", "cosines", "mean_cosine", "pearson", "spearman", "uniformity"]
