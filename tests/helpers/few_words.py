"""Tiny models know thirty words: where this is imported, a run has no --max-unknown unless it is
given one, and no query is noted.
"""

import pytest

from sentence_beam.transforms.search import queries
from sentence_beam.transforms.steps.options import gates

MAX_UNKNOWN, MOST_UNKNOWN = gates.DEFAULTS["max_unknown"], queries.MOST_UNKNOWN
gates.DEFAULTS["max_unknown"] = 1.0
queries.MOST_UNKNOWN = 1.0


def mind_unknown_words(patch: pytest.MonkeyPatch) -> None:
    """Have runs and queries mind unknown words as they do for users, until the patch is undone."""
    patch.setitem(gates.DEFAULTS, "max_unknown", MAX_UNKNOWN)
    patch.setattr(queries, "MOST_UNKNOWN", MOST_UNKNOWN)
