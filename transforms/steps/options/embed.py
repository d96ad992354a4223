"""What the commands are asked to do. A command line fills these classes, and so does a Python program.

None means "not given": the store's value, else the default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from transforms import values
from transforms.common_options import DTYPES_ASKED, METRICS, NO_CALIBRATION
from transforms.corpus.column_types import KeptColumn, parse_columns
from transforms.corpus.files import INPUT_FORMATS
from transforms.corpus.template import parse as parse_template
from transforms.corpus.template import text_template
from transforms.errors import OptionError
from transforms.python_names import parameters_of, python_names
from transforms.space.chunks import ChunksSpec
from transforms.space.identity import PRECISIONS
from transforms.steps.keywords import EmbedKeywords
from transforms.values import StrPath

PARTITIONS = ("file", "content")
# What the values of options must be, by name; an option that is not here takes any text.
KINDS: Mapping[str, values.Kind] = {
    "store": values.filled,
    "input_version": values.whole,
    "input_filter": values.filled,
    "format": values.one_of(*INPUT_FORMATS),
    "delimiter": values.delimiter,
    "text_template": text_template,
    "limit": values.positive,
    "model": values.filled,
    "max_tokens": values.positive,
    "chunks": ChunksSpec.parse,
    "chunk_prefix": parse_template,
    "truncate_dim": values.positive,
    "dtype": values.one_of(*DTYPES_ASKED),
    "precision": values.one_of(*PRECISIONS),
    "partition": values.one_of(*PARTITIONS),
    "unit_tokens": values.size,
    "metric": values.one_of(*METRICS),
    "max_rejects": values.fraction,
    "require_space": values.digest,
    "max_deletes": values.fraction,
    "max_unknown": values.fraction,
    "max_bad_files": values.few,
    "max_drift": values.distance,
    "check_carried": values.fraction,
    "price_per_hour": values.price,
    "currency": values.filled,
    "device": values.device,
    "tokens_per_batch": values.size,
    "target_recall": values.fraction,
    "max_bytes_per_row": values.size,
    "max_latency_ms": values.milliseconds,
}


@dataclass(frozen=True)
class EmbedOptions:
    """The options of `embed` and `plan`, under the names of their flags (docs/reference.md).

    `input` are patterns, `keep_columns` names, each with a type after a colon or without one; a mapping of names to
    types (None: none) is taken too. Raises `OptionError` for a value that its flag would not take.
    """

    input: tuple[str, ...]
    store: str
    input_version: int | None = None
    input_filter: str | None = None
    hidden: bool | None = None
    format: str | None = None
    delimiter: str | None = None
    text_column: str | None = None
    text_template: str | None = None
    id_column: str | None = None
    keep_columns: tuple[str, ...] | None = None
    keep_text: bool | None = None
    limit: int | None = None
    model: str | None = None
    revision: str | None = None
    pooler: str | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    query_prompt: str | None = None
    max_tokens: int | None = None
    chunks: str | None = None
    chunk_prefix: str | None = None
    normalize: bool | None = None
    calibration: str | None = None
    truncate_dim: int | None = None
    dtype: str | None = None
    precision: str | None = None
    partition: str | None = None
    unit_tokens: int | None = None
    index: str | None = None
    metric: str | None = None
    target_recall: float | None = None
    max_bytes_per_row: int | None = None
    max_latency_ms: float | None = None
    max_rejects: float | None = None
    max_deletes: float | None = None
    max_unknown: float | None = None
    max_bad_files: float = 0
    max_drift: float | None = None
    check_carried: float | None = None
    append: bool = False
    require_space: str | None = None
    reembed: bool = False
    price_per_hour: float | None = None
    currency: str | None = None
    dry_run: bool = False
    device: str = "auto"
    tokens_per_batch: int | None = None
    deterministic: bool | None = None
    accelerator: str | None = None
    index_accelerator: str | None = None
    min_ram: str | None = None
    worker_model: str | None = None

    if TYPE_CHECKING:  # paths and lists are taken too

        def __init__(
            self,
            input: StrPath | Iterable[StrPath],
            *,
            dry_run: bool = False,
            **options: Unpack[EmbedKeywords],
        ) -> None: ...

    def __post_init__(self) -> None:
        with python_names(parameters_of(type(self))):
            self._read()

    def _read(self) -> None:
        if self.keep_columns is not None:
            columns = _kept_columns(self.keep_columns)
            object.__setattr__(self, "keep_columns", tuple(map(str, columns)))
        values.read(self, KINDS)
        _read_calibration(self)
        if self.prompt is not None and self.prompt_name is not None:
            raise OptionError("argument --prompt-name: not allowed with argument --prompt")
        if self.text_template is not None and self.text_column is not None:
            raise OptionError("argument --text-template: not allowed with argument --text-column")

    @property
    def kept(self) -> tuple[KeptColumn, ...] | None:
        """The columns to keep, with the types that they are given; None where the option is not given."""
        return None if self.keep_columns is None else parse_columns(",".join(self.keep_columns))

    @property
    def asks_for_index(self) -> bool:
        """Whether an index is asked for now, of a kind or by what it has to reach and may cost."""
        budgets = self.target_recall, self.max_bytes_per_row, self.max_latency_ms
        return self.index is not None or any(value is not None for value in budgets)


def _read_calibration(options: EmbedOptions) -> None:
    """`none` as the empty name, which is no calibration."""
    if options.calibration == NO_CALIBRATION:
        object.__setattr__(options, "calibration", "")


def _kept_columns(given: str | Iterable[str] | Mapping[str, str | None]) -> tuple[KeptColumn, ...]:
    """Columns to keep, from a list or from types by name. Raises OptionError for what is none."""
    if isinstance(given, Mapping):
        given = [str(KeptColumn(name, kind)) for name, kind in given.items()]
    try:
        return parse_columns(given if isinstance(given, str) else ",".join(map(str, given)))
    except OptionError as error:
        raise OptionError(f"argument --keep-columns: {error}") from None
