"""PTransforms: thin steps around the layers above, for our pipelines and other people's."""

from transforms.beam.commit import Commit
from transforms.beam.embed import Embed
from transforms.beam.index import BuildIndex
from transforms.beam.job import EmbedJob, IndexRequest
from transforms.beam.plan import Plan

__all__ = ["BuildIndex", "Commit", "Embed", "EmbedJob", "IndexRequest", "Plan"]
