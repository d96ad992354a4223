"""Encoders in MTEB: `from sentence_beam.mteb import MtebEncoder`."""

from sentence_beam.transforms.evaluation.mteb import MtebEncoder

__all__ = ["MtebEncoder"]
