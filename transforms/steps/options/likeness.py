"""A store that is made like another one: what it takes, and what becomes different later."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.option import declared_in, flag_of
from sentence_beam.transforms.corpus.arrow_types import make_code
from sentence_beam.transforms.corpus.column_types import KeptColumn
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.steps.options.embed import PARTITIONS, EmbedOptions
from sentence_beam.transforms.steps.options.stored import NEVER_TAKEN
from sentence_beam.transforms.store.entries import LikeEntry, RememberedOptions
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.shards.stored_types import read_stored_types

ERASED = "erased rows"
# Remembered fields that are no options of their own, and options that no other store takes.
NOT_COMPARED = ("keep_types", "own_prompts", *NEVER_TAKEN)


@dataclass(frozen=True)
class Likeness:
    """A store and the one that it was made like, whose path is `store`.

    If the store `begins`, `taken` are the flags of the options that it takes, apart from defaults,
    and `different` has its value and the other store's by flag. Later, `different` has what the
    other store has now and had then. `exists` says whether there is such a store still.
    """

    store: str
    begins: bool
    taken: tuple[str, ...] = ()
    different: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    exists: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the likeness as `--json` prints it."""
        return asdict(self)


def make_first_likeness(run: Run, index: IndexRequest | None) -> Likeness | None:
    """Return the likeness of a store that a run begins; None if it is made like no other."""
    if run.like is None:
        return None
    own = _list_by_flag(run, run.globs, index)
    theirs = run.like.options
    taken = [flag for flag in own if own[flag] == theirs.get(flag) != DEFAULTS[flag]]
    return Likeness(run.like.store, True, tuple(taken), _compare(own, theirs))


def find_later_likeness(options: EmbedOptions, previous: Manifest) -> Likeness | None:
    """Return how the store that this one was made like has changed since; None if not requested.

    Raises OptionError if this one has options and was not made like it.
    """
    if options.like is None:
        return None
    store = storage.absolute(options.like)
    if previous.like is None or previous.like.store != store:
        raise OptionError(
            f"{cite('like')} {options.like}: {previous.root} has options of its own and was not"
            f" made like it; leave {cite('like')} out, or name a new {cite('store')}"
        )
    current = read_manifest(store)
    if current is None:
        return Likeness(store, False, exists=False)
    changed = _compare(list_options(current), previous.like.options)
    return Likeness(store, False, different=changed)


def type_columns(columns: Columns, snapshot: Manifest) -> Columns:
    """Return the columns of a store that is made like a snapshot, whose shards have types for those
    that no option names a type for.
    """
    untyped = [name for name in columns.keep if name not in columns.kinds]
    types = [(name, make_code(kind)) for name, kind in read_stored_types(snapshot, untyped).items()]
    return replace(columns, types=(*columns.types, *types))


def make_like_entry(snapshot: Manifest) -> LikeEntry:
    """Return the entry of a store that is made like a snapshot."""
    return LikeEntry(snapshot.root, list_options(snapshot))


def list_options(snapshot: Manifest) -> dict[str, Any]:
    """Return the options and the input of a store by flag, as JSON values."""
    index = snapshot.index.request if snapshot.index is not None else None
    return _list_by_flag(snapshot, snapshot.input.globs, index)


def _list_by_flag(
    made: Run | Manifest, globs: Sequence[str], index: IndexRequest | None
) -> dict[str, Any]:
    values = {
        **_list_remembered(made.options),
        "input": list(globs),
        "partition": made.partition,
        "unit_tokens": made.unit_tokens,
        "index": index.index if index is not None else None,
        "calibration": made.space.calibration,
    }
    erased = made.forgotten.rows if made.forgotten is not None else 0
    return _name_by_flag(values) | {ERASED: erased}


def _list_remembered(options: RememberedOptions) -> dict[str, Any]:
    """Return remembered options by name, None for a model's own prompts; columns have types."""
    values = {name: value for name, value in asdict(options).items() if name not in NOT_COMPARED}
    columns = [KeptColumn(name, options.keep_types.get(name)) for name in options.keep_columns]
    own = dict.fromkeys(options.own_prompts)
    return {**values, **own, "keep_columns": [str(column) for column in columns]}


def _name_by_flag(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of options by flag, in the order in which the options are declared."""
    declared = declared_in(EmbedOptions)
    return {flag_of(name, one): values[name] for name, one in declared.items() if name in values}


def _compare(own: dict[str, Any], others: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of those that differ, by flag."""
    both = {flag: (own[flag], others.get(flag)) for flag in own}
    return {flag: pair for flag, pair in both.items() if pair[0] != pair[1]}


DEFAULTS = _name_by_flag(
    {
        **_list_remembered(RememberedOptions()),
        "input": [],
        "partition": PARTITIONS[0],
        "unit_tokens": UNIT_TOKENS,
        "index": None,
        "calibration": None,
    }
) | {ERASED: 0}
