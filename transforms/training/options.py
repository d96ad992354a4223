"""What is trained, on what, and how."""

import importlib.util

from transforms.base import values
from transforms.base.errors import MissingExtraError, OptionError
from transforms.base.extras import pip_line
from transforms.base.option import Exclusive, option, options
from transforms.space import DEFAULT_MODEL
from transforms.steps.options.common import (
    DEVICE,
    DTYPES_ASKED,
    MAX_REJECTS,
    MAX_TOKENS,
    MODEL,
    REVISION,
)
from transforms.store.entries import RememberedOptions
from transforms.training import recipes

CLASSIFICATION, REGRESSION, COSENT, TRIPLET, RANKING = (
    "classification",
    "regression",
    "cosent",
    "triplet",
    "ranking",
)
OBJECTIVES = (CLASSIFICATION, REGRESSION, COSENT, TRIPLET, RANKING)
CNN = "cnn"
CONCAT = "u,v,|u-v|"
CONCATS = ("u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", CONCAT, "u,v,|u-v|,u*v")  # SBERT, table 6
POOLERS = ("mean", "cls", "max", CNN)
LONGEST = 128
NEEDED = ("sentence_transformers", "accelerate", "datasets")


DATA, MODELS, TRAINING = "data", "model", "training"
AGAIN = Exclusive("again")


def ends_of(text: str) -> tuple[float, float]:
    """Return the least and the greatest score, of LOW,HIGH. Raises OptionError for anything
    else.
    """
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise OptionError(f"{text} is not LOW,HIGH (as in 0,5)") from None
    return low, high


def widths_of(text: str) -> tuple[int, ...]:
    """Return whole numbers above zero."""
    return tuple(values.positive(word) for word in text.split(",") if text)


def whole_number(text: str) -> int:
    """Return a whole number, which may be negative."""
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"invalid int value: {text!r}") from None


@options
class TrainOptions:
    """A training, as a user says it.

    `inputs` and `dev` are [NAME=]PATH; `columns` the data's names of the objective's roles, in
    their order. `pooler` None: the model's own modules, mean where it has none. `scores` are the
    ends of the data's scale, `labels` the labels in their order; `guide` is a model that says which
    negatives are none, `hard_negatives` how many are looked for to each row, `matryoshka` the
    widths that are trained beside the full one, `lora` a rank. `checkpoint_steps` None: a tenth of
    all steps. `must_improve` refuses a model that is no better than the start. `recipe` is the name
    of the one that some of these come from.
    """

    recipe: str | None = option(
        "take options from a published training; flags win (default: none)",
        choices=tuple(recipes.names()),
        default=None,
    )
    inputs: tuple[str, ...] = option(
        "training data: TSV, CSV, JSON lines, Parquet; several, or repeated",
        metavar="[NAME=]PATH",
        several="list",
        flag="--input",
        group=DATA,
        kw_only=False,
    )
    objective: str = option(
        "what is learnt: classification (text1, text2, label), regression or cosent (text1, text2,"
        " score), triplet (anchor, positive, negative), ranking (anchor, positive, perhaps"
        " negative)",
        choices=OBJECTIVES,
        group=DATA,
    )
    dev: str | None = option(
        "data of the same columns that the model is scored on (default: none)",
        metavar="PATH",
        group=DATA,
        default=None,
    )
    test: str | None = option(
        "data of the same columns that the finished model is scored on (default: none)",
        metavar="PATH",
        group=DATA,
        default=None,
    )
    columns: tuple[str, ...] = option(
        "the data's names of the objective's roles, in their order (default: those names,"
        " sentence1, sentence2)",
        kind=values.names,
        metavar="A,B,C",
        group=DATA,
        default=(),
    )
    labels: tuple[str, ...] = option(
        "the labels, as LABEL=NUMBER if the data has numbers for them (default: all, sorted)",
        kind=values.names,
        metavar="A,B,C",
        group=DATA,
        default=(),
    )
    concat: str = option(
        f"classification: what the softmax sees of the two vectors (default: {CONCAT})",
        choices=CONCATS,
        group=DATA,
        default=CONCAT,
    )
    scores: tuple[float, float] | None = option(
        "the ends of the data's scale of scores, which becomes 0 to 1 (default: scores are from 0"
        " to 1)",
        kind=ends_of,
        metavar="LOW,HIGH",
        group=DATA,
        default=None,
    )
    limit: int | None = option(
        "train on the first N rows alone; dev rows are all taken (default: all)",
        kind=values.positive,
        metavar="N",
        group=DATA,
        default=None,
    )
    max_rejects: float = option(
        MAX_REJECTS,
        help=(
            "most of the rows that may be unusable, as those without a text (default:"
            f" {RememberedOptions.max_rejects:g})"
        ),
        group=DATA,
        default=RememberedOptions.max_rejects,
    )
    model: str = option(MODEL, group=MODELS, default=DEFAULT_MODEL)
    revision: str | None = option(REVISION, group=MODELS, default=None)
    pooler: str | None = option(
        "how token states become a vector (default: the model's own, or mean)",
        choices=POOLERS,
        group=MODELS,
        default=None,
    )
    cross_encoder: bool = option(
        "train a model that reads both texts together, for evaluate --cross-encoder and search"
        " --rerank; objectives regression and classification (default: no)",
        group=MODELS,
        default=False,
    )
    max_tokens: int = option(
        MAX_TOKENS, help=f"cut longer texts (default: {LONGEST})", group=MODELS, default=LONGEST
    )
    matryoshka: tuple[int, ...] = option(
        "widths of vectors that are trained beside the full one, for --dim (default: none)",
        kind=widths_of,
        metavar="D,D",
        group=MODELS,
        default=(),
    )
    lora: int | None = option(
        "train adapters of rank R, merged at the end (default: the model itself is trained)",
        kind=values.positive,
        metavar="R",
        group=MODELS,
        default=None,
    )
    freeze_backbone: bool = option(
        "train what is on top of the transformer alone (default: no)", group=MODELS, default=False
    )
    output: str = option(
        "folder of the trained model", kind=values.filled, metavar="DIR", group=MODELS
    )
    resume: bool = option(
        "go on with a training that was stopped; begin where there is none (default: no)",
        group=MODELS,
        exclusive=AGAIN,
        default=False,
    )
    overwrite: bool = option(
        "replace an earlier training in --output (default: no)",
        group=MODELS,
        exclusive=AGAIN,
        default=False,
    )
    epochs: int = option(
        "times through the data (default: 1)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=1,
    )
    batch: int = option(
        "rows of a step (default: 16)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=16,
    )
    lr: float = option(
        "highest learning rate (default: 2e-5)",
        kind=values.price,
        metavar="X",
        group=TRAINING,
        default=2e-5,
    )
    warmup: float = option(
        "part of the steps in which the rate rises; then it falls to 0 (default: 0.1)",
        kind=values.fraction,
        metavar="FRACTION",
        group=TRAINING,
        default=0.1,
    )
    seed: int = option(
        "of the order of rows and all else (default: 12)",
        kind=whole_number,
        metavar="N",
        group=TRAINING,
        default=12,
    )
    mini_batch: int | None = option(
        "ranking: rows that are in memory at once, so that --batch may be large (default: all of"
        " the batch)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    guide: str | None = option(
        "ranking: a model that says which texts of a batch are too near to be negatives (default:"
        " none)",
        metavar="MODEL",
        group=TRAINING,
        default=None,
    )
    hard_negatives: int | None = option(
        "ranking: look for N negatives to each row among the positive texts of others (default:"
        " none)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    dtype: str = option(
        "type of the computation (default: auto, which is float32)",
        choices=DTYPES_ASKED,
        group=TRAINING,
        default="auto",
    )
    device: str = option(DEVICE, group=TRAINING, default="auto")
    checkpoint_steps: int | None = option(
        "steps between checkpoints and dev scores (default: a tenth of all)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    patience: int | None = option(
        "stop after N dev scores that are no better (default: never)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    must_improve: bool = option(
        "exit with status 3 if no dev score is above the start's (default: no)",
        group=TRAINING,
        default=False,
    )


@options
class TrainCommandOptions(TrainOptions):
    """The options of `train`: those of a training, and whether there is one, or several."""

    seeds: int | None = option(
        "train N times, with N seeds from --seed on; all are kept, as DIR/seed-12 and so on"
        " (default: once)",
        kind=values.positive,
        metavar="N",
        default=None,
    )

    dry_run: bool = option(
        "say steps, memory and time, by a few steps, and write nothing (default: no)", default=False
    )


def check(options: TrainOptions) -> None:
    """Raise OptionError for options that do not go together, MissingExtraError where a package is
    not installed.
    """
    objective = options.objective
    if not options.lr > 0:
        raise OptionError("--lr has to be above 0")
    of_ranking = {
        "--mini-batch": options.mini_batch,
        "--guide": options.guide,
        "--hard-negatives": options.hard_negatives,
    }
    given = next((flag for flag, value in of_ranking.items() if value is not None), None)
    if given and objective != RANKING:
        raise OptionError(f"{given} is of --objective {RANKING}; leave it out of {objective}")
    if options.labels and objective != CLASSIFICATION:
        raise OptionError(
            f"--labels is of --objective {CLASSIFICATION}; leave it out of {objective}"
        )
    _check_cross_encoder(options)
    if options.concat != CONCAT and objective != CLASSIFICATION:
        raise OptionError(
            f"--concat is of --objective {CLASSIFICATION}; leave it out of {objective}"
        )
    if options.scores and objective not in (REGRESSION, COSENT):
        raise OptionError(
            f"--scores is of --objective {REGRESSION} and {COSENT}; leave it out of {objective}"
        )
    if options.scores and not options.scores[0] < options.scores[1]:
        raise OptionError(
            "--scores LOW,HIGH: the first has to be the smaller one, as in --scores 0,5"
        )
    if options.matryoshka and objective == CLASSIFICATION:
        raise OptionError(
            f"--matryoshka has no meaning with --objective {CLASSIFICATION}, whose layer has one"
            " width"
        )
    _check_dev(options)
    if options.freeze_backbone and options.lora:
        raise OptionError(
            "--lora trains a part of the backbone, which --freeze-backbone does not; say one of"
            " them"
        )
    if options.dtype == "float16" and options.device == "cpu":
        raise OptionError("--dtype float16 trains on a GPU alone; say bfloat16 or float32")
    needed = [
        *NEEDED,
        *(["peft"] if options.lora else []),
        *(["ir_measures"] if _ranks(options) else []),
    ]
    missing = next((name for name in needed if importlib.util.find_spec(name) is None), None)
    if missing:
        raise MissingExtraError(f"training needs {missing}: {pip_line('train')}")


def _check_cross_encoder(options: TrainOptions) -> None:
    """Raise OptionError for options that a cross-encoder has no use for."""
    if not options.cross_encoder:
        return
    if options.objective not in (REGRESSION, CLASSIFICATION):
        raise OptionError(
            f"--cross-encoder learns scores or labels; say --objective {REGRESSION} or"
            f" {CLASSIFICATION}"
        )
    of_vectors = {
        "--pooler": options.pooler is not None,
        "--matryoshka": bool(options.matryoshka),
        "--lora": options.lora is not None,
        "--freeze-backbone": options.freeze_backbone,
        "--concat": options.concat != CONCAT,
    }
    given = next((flag for flag, is_given in of_vectors.items() if is_given), None)
    if given is not None:
        raise OptionError(
            f"{given} is of encoders, which make vectors; leave it out of --cross-encoder"
        )


def _check_dev(options: TrainOptions) -> None:
    """Raise OptionError for options that need dev scores, if there are none."""
    if options.patience is not None and options.dev is None:
        raise OptionError("--patience counts dev scores; say --dev PATH too")
    if options.must_improve and options.dev is None:
        raise OptionError("--must-improve compares dev scores; say --dev PATH too")


def _ranks(options: TrainOptions) -> bool:
    return options.objective == RANKING and options.dev is not None
