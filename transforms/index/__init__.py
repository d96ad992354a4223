"""FAISS in segments: choose, train, build, search, measure recall. Importing this package does not import faiss."""

from transforms.index.choose import IndexPlan, choose_index
from transforms.index.exact import exact_search
from transforms.index.faiss_module import load_faiss
from transforms.index.recall import (
    Candidates,
    ExactNeighbours,
    measure_recall,
    nprobe_grid,
    recall_at_k,
    segment_base,
)
from transforms.index.sample import held_out_keys, sample_keys, sample_threshold, select
from transforms.index.search import SearchResult, SegmentedIndex, rerank
from transforms.index.segment import SegmentFile, SegmentWriter, build_segment, flat_segment, write_segment
from transforms.index.train import train

__all__ = [
    "Candidates",
    "ExactNeighbours",
    "IndexPlan",
    "SearchResult",
    "SegmentFile",
    "SegmentWriter",
    "SegmentedIndex",
    "build_segment",
    "choose_index",
    "exact_search",
    "flat_segment",
    "held_out_keys",
    "load_faiss",
    "measure_recall",
    "nprobe_grid",
    "recall_at_k",
    "rerank",
    "sample_keys",
    "sample_threshold",
    "segment_base",
    "select",
    "train",
    "write_segment",
]
