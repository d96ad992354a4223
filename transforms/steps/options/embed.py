"""The options of `embed` and `plan`. None: not given, the store's value or else the default."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.option import option, options, read
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.corpus.column_types import KeptColumn, parse_columns
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.options.common import (
    ACCELERATOR,
    DEVICE,
    INDEXES,
    MAX_ANSWER_CHANGE,
    MAX_REJECTS,
    METRIC,
    MIN_RAM,
    PRICE_PER_HOUR,
    STORE,
    TOKENS_PER_BATCH,
)
from sentence_beam.transforms.steps.options.auto import UNIT_TOKENS_ACCELERATOR
from sentence_beam.transforms.steps.options.vector_options import RUN, VectorOptions
from sentence_beam.transforms.store.entries import RememberedOptions

if TYPE_CHECKING:  # the module is written from the classes below
    from sentence_beam.transforms.steps.options.keywords import EmbedKeywords

PARTITIONS = ("file", "content")
MAX_UNKNOWN = 0.3
# Cosine distances beyond what processors and libraries differ by: those of other dtypes are larger.
MAX_DRIFT = {"float32": 1e-7, "float16": 2e-5, "bfloat16": 1e-3, "int8": 1e-2}
STORED = "store"
MACHINE = "machine"


@options
class EmbedOptions(VectorOptions):
    """The options of `embed`, under the names of its flags (docs/reference.md).

    `input` are patterns, `keep_columns` names, each with a type after a colon or without one; a
    mapping of names to types (None: none) is taken too. Raises `OptionError` for a value that its
    flag would not take.
    """

    store: str = option(STORE, group=STORED, default=None)
    partition: str | None = option(
        f"how rows are cut into units (default: {PARTITIONS[0]})",
        choices=PARTITIONS,
        group=STORED,
        remembered=RUN,
        default=None,
    )
    unit_tokens: int | None = option(
        f"estimated tokens in a unit, one shard each (default: {UNIT_TOKENS};"
        f" {UNIT_TOKENS_ACCELERATOR} with --accelerator or --device cuda)",
        kind=values.size,
        metavar="N",
        group=STORED,
        remembered=RUN,
        advanced=True,
        default=None,
    )
    index: str | None = option(
        f"FAISS index to build; {INDEXES} (default: as the store has it, else none)",
        metavar="none|auto|compact|FACTORY",
        group=STORED,
        default=None,
    )
    metric: str | None = option(METRIC, group=STORED, remembered=RUN, advanced=True, default=None)
    max_rejects: float | None = option(MAX_REJECTS, group=STORED, gate=True, default=None)
    max_deletes: float | None = option(
        "share of the rows that a run may delete; 1 allows all (default:"
        f" {RememberedOptions.max_deletes:g})",
        kind=values.fraction,
        metavar="FRACTION",
        group=STORED,
        gate=True,
        default=None,
    )
    max_unknown: float | None = option(
        "tokens unknown to the model that are allowed before the run fails (default:"
        f" {MAX_UNKNOWN:g})",
        kind=values.fraction,
        metavar="FRACTION",
        group=STORED,
        gate=True,
        advanced=True,
        default=None,
    )
    budget: int | str | None = option(
        "tokens that a run may embed (default: none)",
        kind=values.budget,
        metavar="TOKENS|none",
        group=STORED,
        remembered=RUN,
        default=None,
    )
    max_bad_files: float = option(
        "unreadable files to skip, a number or a share; their rows stay as in the last snapshot"
        " (default: 0)",
        kind=values.few,
        metavar="N|FRACTION",
        group=STORED,
        advanced=True,
        default=0,
    )
    max_drift: float | None = option(
        "cosine distance by which the model may have moved since the store was begun (default:"
        f" {MAX_DRIFT['float32']:g}, {MAX_DRIFT['float16']:g} for float16,"
        f" {MAX_DRIFT['bfloat16']:g} for bfloat16, {MAX_DRIFT['int8']:g} for int8)",
        kind=values.distance,
        metavar="X",
        group=STORED,
        gate=True,
        advanced=True,
        default=None,
    )
    max_answer_change: float | None = option(
        MAX_ANSWER_CHANGE, group=STORED, gate=True, advanced=True, default=None
    )
    append: bool = option(
        "files that --input does not name stay; needs --partition file (default: no)",
        group=STORED,
        default=False,
    )
    allow_forgotten: tuple[str, ...] = option(
        "take rows that were erased with `forget` in again, by id; several, or repeated (default:"
        " none)",
        metavar="ID",
        several="repeat",
        group=STORED,
        advanced=True,
        default=(),
    )
    reembed: bool = option(
        "embed everything again, in a new space if need be (default: no)",
        group=STORED,
        default=False,
    )
    like: str | None = option(
        "make a new store like this one (default: none)",
        kind=values.filled,
        metavar="STORE",
        group=STORED,
        default=None,
    )
    device: str = option(DEVICE, group=MACHINE, default="auto")
    tokens_per_batch: int | None = option(
        TOKENS_PER_BATCH, group=MACHINE, advanced=True, default=None
    )
    deterministic: bool | None = option(
        "a text's vector is the same to the bit whatever its neighbours and the number of threads"
        " (default: no)",
        group=MACHINE,
        remembered=RUN,
        advanced=True,
        default=None,
    )
    accelerator: str | None = option(ACCELERATOR, group=MACHINE, default=None)
    min_ram: str | None = option(MIN_RAM, group=MACHINE, advanced=True, default=None)
    worker_model: str | None = option(
        "path of the model on the workers (default: as on this machine)",
        metavar="PATH",
        group=MACHINE,
        advanced=True,
        default=None,
    )

    if TYPE_CHECKING:  # paths and lists are taken too

        def __init__(
            self,
            input: StrPath | Iterable[StrPath] = (),
            **options: Unpack[EmbedKeywords],
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.keep_columns, Mapping):
            columns = [str(KeptColumn(name, kind)) for name, kind in self.keep_columns.items()]
            object.__setattr__(self, "keep_columns", columns)
        read(self)

    @property
    def kept(self) -> tuple[KeptColumn, ...] | None:
        """The columns to keep, with their types if given; None if the option is not given."""
        return None if self.keep_columns is None else parse_columns(",".join(self.keep_columns))


@options
class PlanOptions(EmbedOptions):
    """The options of `plan`: those of `embed`, and a price."""

    price_per_hour: float | None = option(
        PRICE_PER_HOUR,
        help="price of an hour of the machine (default: none)",
        default=None,
    )
    beam_flags: Sequence[str] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            input: StrPath | Iterable[StrPath] = (),
            *,
            price_per_hour: float | None = None,
            beam_flags: Sequence[str] = (),
            **options: Unpack[EmbedKeywords],
        ) -> None: ...
