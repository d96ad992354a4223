"""What options must not ask of a store, each with the line that says so."""

from transforms.calibration import check_space
from transforms.corpus.files import overlaps
from transforms.errors import OptionError, SpaceMismatchError
from transforms.steps.choose import Choice
from transforms.steps.options import EmbedOptions
from transforms.store.manifest import Manifest
from transforms.store.shards import check_kept


def check(asked: EmbedOptions, choice: Choice, previous: Manifest | None) -> None:
    """Raise `OptionError` for options that do not fit each other or the store."""
    if choice.options.deterministic and asked.tokens_per_batch is not None:
        raise OptionError("--tokens-per-batch: deterministic batches have a size of their own; leave it out")
    check_kept(choice.options)
    _check_inputs(asked, choice)
    _check_limit(asked, previous)
    _check_required(asked, choice)
    if previous is not None and not asked.reembed:
        _check_same_space(choice, previous)
    _check_calibration(asked, choice)
    if asked.append and choice.partition == "content":
        raise OptionError(
            "--append: --partition content has no units of single files; name all files, without --append"
        )


def _check_inputs(asked: EmbedOptions, choice: Choice) -> None:
    for glob in asked.input:
        if overlaps(glob, asked.store, choice.options.hidden):
            raise OptionError(
                f"--input {glob} takes in the store {asked.store} itself; move the store out of it or narrow --input"
            )


def _check_limit(asked: EmbedOptions, previous: Manifest | None) -> None:
    """Raise OptionError for a trial run that would replace a whole store."""
    if asked.limit is not None and previous is not None and previous.options.limit is None:
        raise OptionError(
            f"--limit {asked.limit} would leave only that many of the {previous.rows.written} rows of "
            f"{previous.root}; choose another --store"
        )


def _check_required(asked: EmbedOptions, choice: Choice) -> None:
    if asked.require_space not in (None, choice.space.id):
        raise OptionError(
            f"--require-space {asked.require_space}: these options and the model's files make the space "
            f"{choice.space.id}; mend them, or require that one"
        )


def _check_same_space(choice: Choice, previous: Manifest) -> None:
    space = choice.space
    fields = [] if space.pooled_id == previous.space.pooled_id else space.differences(previous.space)
    if choice.partition != previous.partition:
        fields.append("partition")
    if fields:
        raise OptionError(
            f"{previous.root} holds another space: {', '.join(fields)} would change; "
            "leave the option out, choose another --store, or embed everything anew with --reembed"
        )


def _check_calibration(asked: EmbedOptions, choice: Choice) -> None:
    try:
        if choice.calibration is not None:
            check_space(choice.calibration.info, choice.space, asked.calibration or "of the store")
    except SpaceMismatchError as error:
        if asked.calibration is not None:
            raise
        raise OptionError(f"{str(error).partition(';')[0]}; give another --calibration, or '' for none") from error
