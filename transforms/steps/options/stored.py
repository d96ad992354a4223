"""The values for options that a run is not given: a store's own, or those of the store that a new
one is made like.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.files import is_unnamed
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.manifest import Manifest

# The options that belong to a model: another one brings its own.
OF_A_MODEL = (
    "model", "revision", "pooler", "prompt", "query_prompt", "own_prompts", "max_tokens",
    "normalize", "truncate_dim", "precision", "dtype", "metric",
)  # fmt: skip
# remembered options that are a store's own, whatever it is made like
NEVER_TAKEN = ("limit", "budget")


@dataclass(frozen=True)
class Stored:
    """The values for options that are not given; None: the defaults of a new store hold.

    `previous` is the store's last snapshot. Without one, `like` is the snapshot of the store that
    the new one is made like.
    """

    options: RememberedOptions = field(default_factory=RememberedOptions)
    dtype: str | None = None
    partition: str | None = None
    unit_tokens: int | None = None
    index: IndexRequest | None = None
    previous: Manifest | None = None
    like: Manifest | None = None

    @property
    def source(self) -> Manifest | None:
        """The snapshot that the values come from; None for the defaults."""
        return self.previous or self.like


def find_stored(options: EmbedOptions, previous: Manifest | None) -> Stored:
    """Return the values for the options that a run over a store's last snapshot is not given.

    Raises OptionError if a new store is to be like one that does not exist.
    """
    if previous is not None:
        return replace(_read_stored(previous), previous=previous)
    if options.like is None:
        return Stored()
    like = open_store(options.like).manifest
    stored = replace(_read_stored(like), like=like)
    stored = replace(stored, options=reset_to_defaults(stored.options, NEVER_TAKEN))
    return stored if options.model is None else _drop_model(stored)


def fill_input(options: EmbedOptions, stored: Stored) -> EmbedOptions:
    """Return the options; without an input, with that of the last run.

    Raises OptionError if there is none that a run can read again.
    """
    if options.input:
        return options
    if options.append:
        raise OptionError(f"{cite('append=True')} adds files by name; name them by {cite('input')}")
    source = stored.source
    if source is None:
        raise OptionError(f"a new store has no last input; name one by {cite('input')}")
    globs = source.input.globs
    if any(map(is_unnamed, globs)):
        raise OptionError(
            f"the last input of {source.root} was standard input or rows of a program, which"
            f" cannot be read again; name an {cite('input')}"
        )
    return replace(options, input=globs)


def _read_stored(snapshot: Manifest) -> Stored:
    return Stored(
        options=snapshot.options,
        dtype=snapshot.space.dtype,
        partition=snapshot.partition,
        unit_tokens=snapshot.unit_tokens,
        index=snapshot.index.request if snapshot.index is not None else None,
    )


def _drop_model(stored: Stored) -> Stored:
    """Return the values without those that another model brings itself."""
    options = reset_to_defaults(stored.options, OF_A_MODEL)
    index = replace(stored.index, metric="auto") if stored.index is not None else None
    return replace(stored, options=options, dtype=None, index=index)


def reset_to_defaults(options: RememberedOptions, names: Sequence[str]) -> RememberedOptions:
    """Return the options, some of them with the values that they have in a new store."""
    defaults = RememberedOptions()
    return replace(options, **{name: getattr(defaults, name) for name in names})
