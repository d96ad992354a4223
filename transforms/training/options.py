"""What is trained, on what, and how."""

import importlib.util
from dataclasses import dataclass

from transforms.errors import MissingExtraError, OptionError
from transforms.extras import pip_line
from transforms.space import DEFAULT_MODEL

CLASSIFICATION, REGRESSION, COSENT, TRIPLET, RANKING = "classification", "regression", "cosent", "triplet", "ranking"
OBJECTIVES = (CLASSIFICATION, REGRESSION, COSENT, TRIPLET, RANKING)
CNN = "cnn"
POOLERS = ("mean", "cls", "max", CNN)
DTYPES = ("auto", "float32", "bfloat16", "float16")
NEEDED = ("sentence_transformers", "accelerate", "datasets")


@dataclass(frozen=True)
class TrainOptions:
    """A training, as a user says it.

    `inputs` and `dev` are [NAME=]PATH; `columns` the data's names of the objective's roles, in their order. `pooler`
    None: the model's own modules, mean where it has none. `scores` are the ends of the data's scale, `labels` the
    labels in their order; `guide` is a model that says which negatives are none, `hard_negatives` how many are looked
    for to each row, `matryoshka` the widths that are trained beside the full one, `lora` a rank. `checkpoint_steps`
    None: a tenth of all steps. `must_improve` refuses a model that is no better than the start. `recipe` is the name of
    the one that some of these come from.
    """

    inputs: tuple[str, ...]
    objective: str
    output: str
    model: str = DEFAULT_MODEL
    revision: str | None = None
    pooler: str | None = None
    dev: str | None = None
    columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    scores: tuple[float, float] | None = None
    epochs: int = 1
    batch: int = 16
    lr: float = 2e-5
    warmup: float = 0.1
    max_tokens: int = 128
    seed: int = 12
    mini_batch: int | None = None
    guide: str | None = None
    hard_negatives: int | None = None
    matryoshka: tuple[int, ...] = ()
    lora: int | None = None
    freeze_backbone: bool = False
    dtype: str = "auto"
    device: str = "auto"
    checkpoint_steps: int | None = None
    patience: int | None = None
    must_improve: bool = False
    max_rejects: float = 0.01
    limit: int | None = None
    recipe: str | None = None
    resume: bool = False
    overwrite: bool = False


def check(options: TrainOptions) -> None:
    """Raise OptionError for options that do not go together, MissingExtraError where a package is not installed."""
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
        raise OptionError(f"--labels is of --objective {CLASSIFICATION}; leave it out of {objective}")
    if options.scores and objective not in (REGRESSION, COSENT):
        raise OptionError(f"--scores is of --objective {REGRESSION} and {COSENT}; leave it out of {objective}")
    if options.scores and not options.scores[0] < options.scores[1]:
        raise OptionError("--scores LOW,HIGH: the first has to be the smaller one, as in --scores 0,5")
    if options.matryoshka and objective == CLASSIFICATION:
        raise OptionError(f"--matryoshka has no meaning with --objective {CLASSIFICATION}, whose layer has one width")
    _check_dev(options)
    if options.freeze_backbone and options.lora:
        raise OptionError("--lora trains a part of the backbone, which --freeze-backbone does not; say one of them")
    if options.resume and options.overwrite:
        raise OptionError("--resume goes on and --overwrite begins again; say one of them")
    if options.dtype == "float16" and options.device == "cpu":
        raise OptionError("--dtype float16 trains on a GPU alone; say bfloat16 or float32")
    needed = [*NEEDED, *(["peft"] if options.lora else []), *(["ir_measures"] if _ranks(options) else [])]
    missing = next((name for name in needed if importlib.util.find_spec(name) is None), None)
    if missing:
        raise MissingExtraError(f"training needs {missing}: {pip_line('train')}")


def _check_dev(options: TrainOptions) -> None:
    """Raise OptionError for options that need dev scores, if there are none."""
    if options.patience is not None and options.dev is None:
        raise OptionError("--patience counts dev scores; say --dev PATH too")
    if options.must_improve and options.dev is None:
        raise OptionError("--must-improve compares dev scores; say --dev PATH too")


def _ranks(options: TrainOptions) -> bool:
    return options.objective == RANKING and options.dev is not None
