"""PTransforms: thin steps around the layers above, for our pipelines and other people's."""

from sentence_beam.transforms.beam.chunks import Chunks
from sentence_beam.transforms.beam.commit import Commit
from sentence_beam.transforms.beam.embed import Embed
from sentence_beam.transforms.beam.embed_rows import EmbedRows
from sentence_beam.transforms.beam.graph import register_coders
from sentence_beam.transforms.beam.index import BuildIndex
from sentence_beam.transforms.beam.neighbours import Neighbours
from sentence_beam.transforms.beam.plan import Plan
from sentence_beam.transforms.beam.settle import Settle
from sentence_beam.transforms.beam.watch import with_watch
from sentence_beam.transforms.beam.write_store import WriteStore
from sentence_beam.transforms.steps.joins.nearest_rows import NeighboursJob
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.index_entries import IndexRequest

register_coders()

__all__ = [
    "BuildIndex",
    "Chunks",
    "Commit",
    "Embed",
    "EmbedJob",
    "EmbedRows",
    "IndexRequest",
    "Neighbours",
    "NeighboursJob",
    "Plan",
    "Settle",
    "WriteStore",
    "with_watch",
]
