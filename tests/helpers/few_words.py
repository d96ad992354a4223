"""Tiny models know thirty words: where this is imported, a run has no --max-unknown unless it is
given one, and no query is noted.
"""

import pytest

from sentence_beam.transforms.search import query_vectors
from sentence_beam.transforms.steps.options import gate_options

MAX_UNKNOWN, MOST_UNKNOWN = gate_options.DEFAULTS["max_unknown"], query_vectors.MOST_UNKNOWN
gate_options.DEFAULTS["max_unknown"] = 1.0
query_vectors.MOST_UNKNOWN = 1.0


def mind_unknown_words(patch: pytest.MonkeyPatch) -> None:
    """Have runs and queries mind unknown words as they do for users, until the patch is undone."""
    patch.setitem(gate_options.DEFAULTS, "max_unknown", MAX_UNKNOWN)
    patch.setattr(query_vectors, "MOST_UNKNOWN", MOST_UNKNOWN)
