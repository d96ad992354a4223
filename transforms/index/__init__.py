"""FAISS in segments: choose, train, build, search, measure recall.

Importing this package does not import faiss.
"""

from transforms.index.candidates import Candidates
from transforms.index.checks import SegmentChecks
from transforms.index.choose import IndexPlan, choose_index
from transforms.index.exact import exact_search
from transforms.index.recall import ExactNeighbours, measure_recall, nprobe_grid
from transforms.index.sample import held_out_keys, sample_keys, sample_threshold, select
from transforms.index.search import SegmentedIndex, rerank
from transforms.index.segment import SegmentFile, SegmentWriter, WrittenSegment, flat_segment
from transforms.index.spec import IndexSpec
from transforms.index.train import train
from transforms.index.trained import TrainedIndex

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
