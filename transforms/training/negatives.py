"""Texts of other rows that a model takes for a row's positive one: what it has to learn to tell
apart.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import datasets
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from transforms.base.errors import OptionError
from transforms.training.objectives import guide_of
from transforms.training.options import TrainOptions

# a text whose score is nearer than this share to the positive one's may well be one itself
MARGIN = 0.05


def with_negatives(
    values: Mapping[str, Sequence[Any]], model: SentenceTransformer, options: TrainOptions
) -> dict[str, list[str]]:
    """The rows anchor, positive with columns negative_1, ...; those for which too few are found are
    left out.

    They are found by the guide where there is one, else by the model as it is. Raises OptionError
    where none is left.
    """
    judge = guide_of(options.guide, model.device) if options.guide else model
    rows = datasets.Dataset.from_dict({role: list(values[role]) for role in ("anchor", "positive")})
    datasets.disable_progress_bars()
    try:
        found = mine_hard_negatives(
            rows,
            judge,
            anchor_column_name="anchor",
            positive_column_name="positive",
            num_negatives=options.hard_negatives or 1,
            relative_margin=MARGIN,
            output_format="n-tuple",
            batch_size=options.batch,
            verbose=False,
        )
    except ValueError as error:
        raise OptionError(f"--hard-negatives {options.hard_negatives}: {error}") from error
    if not len(found):
        raise OptionError(
            f"--hard-negatives {options.hard_negatives}: no row has so many; ask for fewer"
        )
    return {name: list(found[name]) for name in found.column_names}
