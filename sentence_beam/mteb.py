"""Encoders in MTEB: `from sentence_beam.mteb import MtebEncoder`."""

from transforms.evaluation.mteb import MtebEncoder

__all__ = ["MtebEncoder"]
