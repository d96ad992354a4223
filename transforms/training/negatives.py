"""Mine hard negatives: texts of other rows that a model takes for a row's positive text."""

from collections.abc import Mapping, Sequence
from typing import Any

import datasets
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.training.objectives import load_guide
from sentence_beam.transforms.training.train_options import TrainOptions

# a text whose score is this near (share) to the positive text's may be positive too
MARGIN = 0.05


def mine_negatives(
    values: Mapping[str, Sequence[Any]], model: SentenceTransformer, options: TrainOptions
) -> dict[str, list[str]]:
    """Return the rows anchor, positive with columns negative_1, ...

    Rows with too few negatives are left out. The guide finds them, or else the untrained model.
    Raises OptionError if no row is left.
    """
    judge = load_guide(options.guide, model.device) if options.guide else model
    rows = datasets.Dataset.from_dict({role: list(values[role]) for role in ("anchor", "positive")})
    datasets.disable_progress_bars()
    try:
        mined = mine_hard_negatives(
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
        raise OptionError(f"{cite('hard_negatives')} {options.hard_negatives}: {error}") from error
    if not len(mined):
        raise OptionError(
            f"{cite('hard_negatives')} {options.hard_negatives}: no row has so many; ask for fewer"
        )
    return {name: list(mined[name]) for name in mined.column_names}
