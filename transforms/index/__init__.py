"""FAISS in segments: choose, train, build, search, measure recall.

Importing this package does not import faiss.
"""

from sentence_beam.transforms.index.candidates import Candidates
from sentence_beam.transforms.index.exact import exact_search
from sentence_beam.transforms.index.index_kinds import IndexPlan, choose_index
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.keyed_sample import (
    held_out_keys,
    sample_keys,
    sample_threshold,
    select,
)
from sentence_beam.transforms.index.quantizer import train
from sentence_beam.transforms.index.recall import ExactNeighbours, measure_recall, nprobe_grid
from sentence_beam.transforms.index.segment import (
    SegmentFile,
    SegmentWriter,
    WrittenSegment,
    flat_segment,
)
from sentence_beam.transforms.index.segment_checks import SegmentChecks
from sentence_beam.transforms.index.segment_search import SegmentedIndex, rerank
from sentence_beam.transforms.index.trained import TrainedIndex

__all__ = [
    "Candidates",
    "ExactNeighbours",
    "IndexPlan",
    "IndexSpec",
    "SegmentChecks",
    "SegmentFile",
    "SegmentWriter",
    "SegmentedIndex",
    "TrainedIndex",
    "WrittenSegment",
    "choose_index",
    "exact_search",
    "flat_segment",
    "held_out_keys",
    "measure_recall",
    "nprobe_grid",
    "rerank",
    "sample_keys",
    "sample_threshold",
    "select",
    "train",
]
