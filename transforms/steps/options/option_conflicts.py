"""Checks of options that do not fit each other or the store."""

from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError, cite
from sentence_beam.transforms.calibration import check_space
from sentence_beam.transforms.corpus.find import overlaps
from sentence_beam.transforms.corpus.lakes import is_table
from sentence_beam.transforms.space.int8_model import INT8
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.chosen_options import Choice
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_columns import PIECE_COLUMNS, check_kept

OF_VECTORS = (  # remembered options that decide vectors
    "model", "revision", "pooler", "prompt", "max_tokens", "chunks", "normalize",
    "truncate_dim", "dtype", "precision",
)  # fmt: skip


def check(options: EmbedOptions, choice: Choice, previous: Manifest | None) -> None:
    """Raise `OptionError` for options that do not fit each other or the store."""
    if choice.options.deterministic and options.tokens_per_batch is not None:
        raise OptionError(
            f"{cite('tokens_per_batch')}: deterministic batches have a size of their own; leave it"
            " out"
        )
    check_kept(choice.options)
    _check_int8(options, choice)
    _check_chunks(choice)
    if previous is not None and not options.reembed:
        _check_same_chunks(choice, previous)
    _check_table_part(options)
    _check_inputs(options, choice)
    _check_limit(options, previous)
    _check_budget(options, choice, previous)
    if previous is not None and not options.reembed:
        _check_same_space(options, choice, previous)
    _check_calibration(options, choice)
    if options.append and choice.partition == "content":
        raise OptionError(
            f"{cite('append')}: {cite('partition')} content has no units of single files; name all"
            f" files, without {cite('append=True')}"
        )


def _check_int8(options: EmbedOptions, choice: Choice) -> None:
    """Raise OptionError for options that do not fit a model that OpenVINO quantises."""
    if choice.space.dtype != INT8:
        return
    if options.accelerator is not None or options.device.startswith("cuda"):
        raise OptionError(
            f"{cite('dtype')} int8 runs on the CPU; leave {cite('accelerator')} and"
            f" {cite('device')} out, or say {cite('dtype')} bfloat16"
        )


def _check_chunks(choice: Choice) -> None:
    """Raise OptionError for chunks that other options rule out."""
    options = choice.options
    chunks = choice.recipe.chunks
    chunks.check_prefix(options.chunk_prefix)
    has_pieces = chunks.cuts and chunks.combine != "mean"
    for name in options.keep_columns:
        if has_pieces and name in PIECE_COLUMNS:
            raise OptionError(
                f"{cite('keep_columns')} {name}: with {cite('chunks')} every shard has a column"
                f" {name} of its own"
            )
    whole = chunks.kind == "late" or chunks.combine == "mean"
    if whole and choice.partition == "content":
        raise OptionError(
            f"{cite('chunks')} {chunks}: it needs whole documents, and {cite('partition')} content"
            f" groups pieces by their text; say {cite('partition')} file"
        )


def _check_same_chunks(choice: Choice, previous: Manifest) -> None:
    """Raise OptionError for chunks other than those of a store that has rows."""
    if not previous.rows.written:
        return
    for name in ("chunks", "chunk_prefix"):
        before = getattr(previous.options, name)
        now = getattr(choice.options, name)
        if before != now:
            raise OptionError(
                f"{cite(name)} {now!r}: {previous.root} has its documents cut by {before!r}; leave"
                f" the option out, choose another {cite('store')}, or embed everything again with"
                f" {cite('reembed=True')}"
            )


def _check_inputs(options: EmbedOptions, choice: Choice) -> None:
    for glob in options.input:
        if overlaps(glob, options.store, choice.options.hidden):
            raise OptionError(
                f"{cite('input')} {glob} takes in the store {options.store} itself; choose a"
                f" {cite('store')} outside of it, or narrow {cite('input')}"
            )


def _check_table_part(options: EmbedOptions) -> None:
    """Raise OptionError for a part of an input that is not a table, or a version of several."""
    parts = {
        cite("input_version"): options.input_version,
        cite("input_filter"): options.input_filter,
    }
    for flag in (flag for flag, value in parts.items() if value is not None):
        for name in options.input:
            if not is_table(name):
                raise OptionError(
                    f"{flag}: {cite('input')} {name} is no table (iceberg:NAME, delta:PATH); leave"
                    " the option out"
                )
    if options.input_version is not None and len(options.input) > 1:
        raise OptionError(
            f"{cite('input_version')}: there are {len(options.input)} tables; name one"
            f" {cite('input')}"
        )


def _check_limit(options: EmbedOptions, previous: Manifest | None) -> None:
    """Raise OptionError for a trial run that would replace a whole store."""
    if options.limit is not None and previous is not None and previous.options.limit is None:
        raise OptionError(
            f"{cite('limit')} {options.limit} would leave only that many of the"
            f" {previous.rows.written} rows of {previous.root}; choose another {cite('store')}"
        )


def _check_budget(options: EmbedOptions, choice: Choice, previous: Manifest | None) -> None:
    """Raise OptionError for options that a budget rules out, a remembered one too."""
    budget = choice.options.budget
    if budget is None:
        return
    if options.limit is not None:
        why = f"{cite('limit')} takes the first rows alone, whatever waits"
    elif choice.partition == "content":
        why = f"{cite('partition')} content has no units of single files that could wait"
    elif options.reembed and previous is not None:
        why = (
            f"{cite('reembed=True')} makes every row new, and pending files would keep their old"
            " vectors"
        )
    else:
        return
    mend = "leave one of them out"
    if options.budget is None and previous is not None:
        mend = f"{previous.root} remembers the budget, say {cite('budget')} none too"
    raise OptionError(f"{cite('budget')} {budget}: {why}; {mend}")


def _check_same_space(options: EmbedOptions, choice: Choice, previous: Manifest) -> None:
    space = choice.space
    before = previous.space
    fields = [] if space.pooled_id == before.pooled_id else space.differences(before)
    if choice.partition != previous.partition:
        fields.append("partition")
    if fields:
        mend = "leave the option out"
        if not _asks_for_others(options, choice, previous):
            mend = f"no option says so: put the files of {choice.options.model} back as they were"
        raise OptionError(
            f"{previous.root} holds another space: {', '.join(fields)} would change; {mend}, choose"
            f" another {cite('store')}, or embed everything again with {cite('reembed=True')}"
        )


def _asks_for_others(options: EmbedOptions, choice: Choice, previous: Manifest) -> bool:
    """Whether an option that was given asks for other vectors than the store's options do."""
    if options.prompt_name is not None or options.calibration is not None:
        return True
    if choice.partition != previous.partition:
        return True
    return any(
        getattr(options, name) is not None
        and getattr(choice.options, name) != getattr(previous.options, name)
        for name in OF_VECTORS
    )


def _check_calibration(options: EmbedOptions, choice: Choice) -> None:
    try:
        if choice.calibration is not None:
            check_space(
                choice.calibration.info, choice.space, options.calibration or "of the store"
            )
    except SpaceMismatchError as error:
        if options.calibration is not None:
            raise
        raise OptionError(
            f"{error.message.partition(';')[0]}; give another {cite('calibration')}, or '' for none"
        ) from error
