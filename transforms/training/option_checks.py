"""Check training options: which of them work together, and which packages they need."""

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.training.train_options import (
    CLASSIFICATION,
    CONCAT,
    COSENT,
    RANKING,
    REGRESSION,
    TrainOptions,
)

PACKAGES = ("sentence_transformers", "accelerate", "datasets")


def check(options: TrainOptions) -> None:
    """Raise OptionError for options that do not work together.

    Raises MissingExtraError if a package is not installed.
    """
    if not options.lr > 0:
        raise OptionError(f"{cite('lr')} has to be above 0")
    _check_objective(options)
    _check_cross_encoder(options)
    if options.scores and not options.scores[0] < options.scores[1]:
        raise OptionError(
            f"{cite('scores')} LOW,HIGH: the first has to be the smaller one, as in"
            f" {cite('scores')} 0,5"
        )
    _check_dev(options)
    _check_weights(options)
    _check_installed(options)


def _check_objective(options: TrainOptions) -> None:
    """Raise OptionError for an option of another objective."""
    objectives_by_flag = {
        cite("mini_batch"): (options.mini_batch is not None, (RANKING,)),
        cite("guide"): (options.guide is not None, (RANKING,)),
        cite("hard_negatives"): (options.hard_negatives is not None, (RANKING,)),
        cite("labels"): (bool(options.labels), (CLASSIFICATION,)),
        cite("concat"): (options.concat != CONCAT, (CLASSIFICATION,)),
        cite("scores"): (options.scores is not None, (REGRESSION, COSENT)),
    }
    for flag, (is_given, objectives) in objectives_by_flag.items():
        if is_given and options.objective not in objectives:
            raise OptionError(
                f"{flag} is for {cite('objective')} {' and '.join(objectives)}; leave it out of"
                f" {options.objective}"
            )
    if options.matryoshka and options.objective == CLASSIFICATION:
        raise OptionError(
            f"{cite('matryoshka')} has no meaning with {cite('objective')} {CLASSIFICATION}, whose"
            " layer has one width"
        )


def _check_cross_encoder(options: TrainOptions) -> None:
    """Raise OptionError for options that a cross-encoder does not use."""
    if not options.cross_encoder:
        return
    if options.objective not in (REGRESSION, CLASSIFICATION):
        raise OptionError(
            f"{cite('cross_encoder')} learns scores or labels; say {cite('objective')} {REGRESSION}"
            f" or {CLASSIFICATION}"
        )
    encoder_flags = {
        cite("pooler"): options.pooler is not None,
        cite("matryoshka"): bool(options.matryoshka),
        cite("lora"): options.lora is not None,
        cite("freeze_backbone=True"): options.freeze_backbone,
        cite("concat"): options.concat != CONCAT,
    }
    for flag, is_given in encoder_flags.items():
        if is_given:
            raise OptionError(
                f"{flag} is for encoders, which make vectors; leave it out of"
                f" {cite('cross_encoder')}"
            )


def _check_dev(options: TrainOptions) -> None:
    """Raise OptionError for options that need dev scores, if there are none."""
    if options.patience is not None and options.dev is None:
        raise OptionError(f"{cite('patience')} counts dev scores; say {cite('dev')} PATH too")
    if options.must_improve and options.dev is None:
        raise OptionError(
            f"{cite('must_improve=True')} compares dev scores; say {cite('dev')} PATH too"
        )


def _check_weights(options: TrainOptions) -> None:
    """Raise OptionError for weights that cannot be trained as requested."""
    if options.freeze_backbone and options.lora:
        raise OptionError(
            f"{cite('lora')} trains a part of the backbone, {cite('freeze_backbone=True')} trains"
            " none of it; say one of them"
        )
    if options.dtype == "float16" and options.device == "cpu":
        raise OptionError(f"{cite('dtype')} float16 trains only on a GPU; say bfloat16 or float32")


def _check_installed(options: TrainOptions) -> None:
    """Raise MissingExtraError for the first package that is not installed."""
    packages = list(PACKAGES)
    if options.lora:
        packages.append("peft")
    if options.objective == RANKING and options.dev is not None:
        packages.append("ir_measures")
    for name in packages:
        require_package(name, "train", "training")
