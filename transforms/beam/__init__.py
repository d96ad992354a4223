"""PTransforms: thin steps around the layers above, for our pipelines and other people's."""

from transforms.beam.chunks import Chunks
from transforms.beam.commit import Commit
from transforms.beam.embed import Embed
from transforms.beam.embed_rows import EmbedRows
from transforms.beam.graph import register_coders
from transforms.beam.index import BuildIndex
from transforms.beam.neighbours import Neighbours
from transforms.beam.plan import Plan
from transforms.beam.settle import Settle
from transforms.beam.watch import with_watch
from transforms.beam.write_store import WriteStore
from transforms.steps.joins.neighbours import NeighboursJob
from transforms.steps.options.job import EmbedJob
from transforms.store.index_entries import IndexRequest

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
