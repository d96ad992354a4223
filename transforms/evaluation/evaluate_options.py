"""Options of `evaluate`."""

from dataclasses import replace

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.option import Declared, option, options
from sentence_beam.transforms.evaluation.classifier import CLASSIFIERS, LOGISTIC
from sentence_beam.transforms.evaluation.similarity import COSINE, SIMILARITIES
from sentence_beam.transforms.options.common import (
    CSV,
    DELIMITER,
    DEVICE,
    DTYPE,
    JSON_ROWS,
    MAX_TOKENS,
    MODEL,
    PROMPT,
    QUERY_PROMPT,
    REVISION,
    TABLE_FILE,
)
from sentence_beam.transforms.space import DEFAULT_MODEL

EVERY_HEAD = "ditto:*"
AVERAGE = "Avg."  # in the place of a task's name: the average of several


def _limit_to_tasks(declared: Declared) -> Declared:
    """Return a declaration whose help says that the option is for tables of tasks."""
    return replace(declared, help=f"of tasks: {declared.help}")


@options
class EvaluateOptions:
    """Tasks, and the methods to score on them: each pooler, calibration and width.

    `tasks`: [KIND:]NAME=PATH[,PATH] each; `make`: PROBE=PATH each. `calibrations` are folders that
    `fit` made, each for the pooler that it was fitted on. `truncate_dims` are scored beside the
    full width, `cross_encoders` (folders) beside all poolers. `cache` is a folder in which scores
    are kept.
    """

    tasks: tuple[str, ...] = option(
        "a task; KIND is sts (pairs with scores), relatedness, retrieval, classification, nli,"
        " pairs, triplets, clustering or probing (default: sts); repeat for more",
        metavar="[KIND:]NAME=PATH[,PATH]",
        several="repeat",
        flag="--task",
        default=(),
    )
    delimiter: str | None = option(_limit_to_tasks(DELIMITER), default=None)
    csv: str | None = option(_limit_to_tasks(CSV), default=None)
    json_rows: str | None = option(_limit_to_tasks(JSON_ROWS), default=None)
    make: tuple[str, ...] = option(
        "a probing task made from a text file with a sentence a line: PROBE is sentence-length,"
        " word-content or bigram-shift; repeat for more (default: none)",
        metavar="PROBE=PATH",
        several="repeat",
        default=(),
    )
    model: str = option(MODEL, default=DEFAULT_MODEL)
    revision: str | None = option(REVISION, default=None)
    poolers: tuple[str, ...] = option(
        f"see below; repeat for more; {EVERY_HEAD} is every head (default: auto)",
        metavar="SPEC",
        several="repeat",
        flag="--pooler",
        default=("auto",),
    )
    calibrations: tuple[str, ...] = option(
        "a folder that fit made: score the vectors it was fitted for with it too; repeat for more"
        " (default: none)",
        metavar="PATH",
        several="repeat",
        flag="--calibration",
        default=(),
    )
    truncate_dims: tuple[int, ...] = option(
        "score the first D components too; repeat for more (default: all components alone)",
        kind=values.positive,
        metavar="D",
        several="repeat",
        flag="--dim",
        default=(),
    )
    cross_encoders: tuple[str, ...] = option(
        "a folder that train --cross-encoder wrote, scored beside the poolers; repeat for more"
        " (default: none)",
        metavar="DIR",
        several="repeat",
        flag="--cross-encoder",
        default=(),
    )
    prompt: str | None = option(
        PROMPT,
        help="text put before every text but queries of retrieval (default: the model's)",
        default=None,
    )
    query_prompt: str | None = option(
        QUERY_PROMPT,
        help="text put before every query of retrieval (default: the model's)",
        default=None,
    )
    similarity: str = option(
        "of two vectors, for sts, pairs and triplets; distances are negative, of vectors as pooled "
        f"(default: {COSINE})",
        choices=SIMILARITIES,
        default=COSINE,
    )
    max_tokens: int | None = option(MAX_TOKENS, default=None)
    dtype: str = option(
        DTYPE, help="type of the forward pass (default: float32)", default="float32"
    )
    device: str = option(DEVICE, default="auto")
    classifier: str = option(
        f"classifier of classification, nli and probing (default: {LOGISTIC})",
        choices=CLASSIFIERS,
        default=LOGISTIC,
    )
    cache: str | None = option(
        "folder that keeps scores; what is there is not computed again (default: none)",
        metavar="DIR",
        default=None,
    )


@options
class EvaluateCommandOptions(EvaluateOptions):
    """Options of the command `evaluate`: an evaluation, and the files to write."""

    output: str | None = option(
        f"{TABLE_FILE}; a heat map (SVG) beside it for {EVERY_HEAD} (default: a table is printed"
        " alone)",
        metavar="FILE",
        default=None,
    )
    report: str | None = option(
        "a page with the scores, their intervals and heat maps (default: none)",
        metavar="FILE.html",
        default=None,
    )
