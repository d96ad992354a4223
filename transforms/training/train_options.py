"""Options of `train`: the data, the model and the training."""

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import Exclusive, option, options
from sentence_beam.transforms.options.common import (
    CSV,
    DELIMITER,
    DEVICE,
    FLOATS_ASKED,
    JSON_ROWS,
    MAX_REJECTS,
    MAX_TOKENS,
    MODEL,
    REVISION,
)
from sentence_beam.transforms.space import DEFAULT_MODEL
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.training import recipes

CLASSIFICATION = "classification"
REGRESSION = "regression"
COSENT = "cosent"
TRIPLET = "triplet"
RANKING = "ranking"
OBJECTIVES = (CLASSIFICATION, REGRESSION, COSENT, TRIPLET, RANKING)
CNN = "cnn"
CONCAT = "u,v,|u-v|"
CONCATS = ("u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", CONCAT, "u,v,|u-v|,u*v")  # SBERT, table 6
POOLERS = ("mean", "cls", "max", CNN)
LONGEST = 128

# Groups of options in the help.
DATA = "data"
MODELS = "model"
TRAINING = "training"
AGAIN = Exclusive("again")


def parse_ends(text: str) -> tuple[float, float]:
    """Parse LOW,HIGH: the lowest and the highest score. Raises OptionError for anything else."""
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise OptionError(f"{text} is not LOW,HIGH (as in 0,5)") from None
    return low, high


def parse_widths(text: str) -> tuple[int, ...]:
    """Parse whole numbers above zero, separated by commas."""
    return tuple(values.positive(word) for word in text.split(",") if text)


def parse_whole_number(text: str) -> int:
    """Parse a whole number, which may be negative."""
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"invalid int value: {text!r}") from None


@options
class TrainOptions:
    """Options of one training.

    `inputs`, `dev` and `test` are [NAME=]PATH. `columns` are the data's columns for the objective's
    roles, in the order of the roles. If `pooler` is None, the model's own modules pool, or mean if
    it has none. `scores` are the ends of the data's scale; `labels` are the labels in order.
    `guide` is a model that finds false negatives, `hard_negatives` a number for each row,
    `matryoshka` the widths to train beside the full one, `lora` a rank. If `checkpoint_steps` is
    None, it is a tenth of all steps. `must_improve` refuses a model that does not beat the start.
    `recipe` names the published training that supplied some of these options.
    """

    recipe: str | None = option(
        "take options from a published training; flags win (default: none)",
        choices=tuple(recipes.list_recipes()),
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
        "what to learn: classification (text1, text2, label), regression or cosent (text1, text2,"
        " score), triplet (anchor, positive, negative), ranking (anchor, positive, perhaps"
        " negative)",
        choices=OBJECTIVES,
        group=DATA,
    )
    dev: str | None = option(
        "data with the same columns to score the model on (default: none)",
        metavar="PATH",
        group=DATA,
        default=None,
    )
    test: str | None = option(
        "data with the same columns to score the finished model on (default: none)",
        metavar="PATH",
        group=DATA,
        default=None,
    )
    delimiter: str | None = option(DELIMITER, group=DATA, default=None)
    csv: str | None = option(CSV, group=DATA, default=None)
    json_rows: str | None = option(JSON_ROWS, group=DATA, default=None)
    columns: tuple[str, ...] = option(
        "the data's columns for the objective's roles, in order (default: the roles' names, or"
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
        "lowest and highest score of the data, scaled to 0 and 1 (default: 0,1)",
        kind=parse_ends,
        metavar="LOW,HIGH",
        group=DATA,
        default=None,
    )
    limit: int | None = option(
        "train on the first N rows; all dev rows are used (default: all)",
        kind=values.positive,
        metavar="N",
        group=DATA,
        default=None,
    )
    max_rejects: float = option(
        MAX_REJECTS,
        help=(
            "highest share of unusable rows, such as rows without text (default:"
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
        "widths of vectors to train beside the full one, for --dim (default: none)",
        kind=parse_widths,
        metavar="D,D",
        group=MODELS,
        default=(),
    )
    lora: int | None = option(
        "train adapters of rank R, merged at the end (default: train the whole model)",
        kind=values.positive,
        metavar="R",
        group=MODELS,
        default=None,
    )
    freeze_backbone: bool = option(
        "train only the layers on top of the transformer (default: no)", group=MODELS, default=False
    )
    output: str = option(
        "folder of the trained model", kind=values.filled, metavar="DIR", group=MODELS
    )
    resume: bool = option(
        "continue a stopped training, or begin one if there is none (default: no)",
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
        "passes over the data (default: 1)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=1,
    )
    batch: int = option(
        "rows in a step (default: 16)",
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
        "share of the steps in which the rate rises; then it falls to 0 (default: 0.1)",
        kind=values.fraction,
        metavar="FRACTION",
        group=TRAINING,
        default=0.1,
    )
    seed: int = option(
        "seed of the order of rows and of all other randomness (default: 12)",
        kind=parse_whole_number,
        metavar="N",
        group=TRAINING,
        default=12,
    )
    mini_batch: int | None = option(
        "ranking: rows in memory at once, so that --batch may be large (default: the whole batch)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    guide: str | None = option(
        "ranking: a model that finds texts of a batch too near to be negatives (default: none)",
        metavar="MODEL",
        group=TRAINING,
        default=None,
    )
    hard_negatives: int | None = option(
        "ranking: choose N negatives for each row among the positives of others (default: none)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    dtype: str = option(
        "type of the computation (default: auto, which is float32)",
        choices=FLOATS_ASKED,
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
        "stop after N dev scores without improvement (default: never)",
        kind=values.positive,
        metavar="N",
        group=TRAINING,
        default=None,
    )
    must_improve: bool = option(
        "exit with status 3 if no dev score beats the start (default: no)",
        group=TRAINING,
        default=False,
    )


@options
class TrainCommandOptions(TrainOptions):
    """Options of the command `train`: one training, several seeds, or a dry run."""

    seeds: int | None = option(
        "train N times, with N seeds from --seed on, and keep all as DIR/seed-12 and so on"
        " (default: once)",
        kind=values.positive,
        metavar="N",
        default=None,
    )

    dry_run: bool = option(
        "estimate steps, memory and time from a few steps; write nothing (default: no)",
        default=False,
    )
