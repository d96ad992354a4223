"""Search over a snapshot: the nearest rows of texts, by its index or exactly."""

from sentence_beam.transforms.search.hits import Hit, Hits
from sentence_beam.transforms.search.opened import READ_LISTS, Copies
from sentence_beam.transforms.search.query_vectors import unknown_queries
from sentence_beam.transforms.search.searcher import PASSAGE, Searcher, UnknownIdError
from sentence_beam.transforms.search.selection import Selection

__all__ = [
    "PASSAGE",
    "READ_LISTS",
    "Copies",
    "Hit",
    "Hits",
    "Searcher",
    "Selection",
    "UnknownIdError",
    "unknown_queries",
]
