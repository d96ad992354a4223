"""Search over a snapshot: the nearest rows of texts, by its index or exactly."""

from transforms.search.hits import Hit, Hits
from transforms.search.opened import READ_LISTS, Copies
from transforms.search.queries import NO_QUERY_PROMPT, unknown_queries
from transforms.search.searcher import PASSAGE, Searcher, UnknownIdError
from transforms.search.selection import Selection

__all__ = [
    "NO_QUERY_PROMPT",
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
