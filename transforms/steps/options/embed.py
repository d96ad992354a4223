"""What the commands are asked to do. A command line fills these classes, and so does a Python program.

None means "not given": the store's value, else the default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from transforms import values
from transforms.common_options import DTYPES_ASKED, METRICS
from transforms.corpus.column_types import KeptColumn, parse_columns
from transforms.corpus.files import INPUT_FORMATS
from transforms.corpus.template import parse as parse_template
from transforms.corpus.template import text_template
from transforms.errors import OptionError
from transforms.python_names import parameters_of, python_names
from transforms.space.chunks import ChunksSpec
from transforms.space.identity import PRECISIONS
from transforms.steps.keywords import EmbedKeywords
from transforms.values import FOLDS, StrPath

PARTITIONS = ("file", "content")
NO_CALIBRATION = "none"
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
    "k": values.positive,
    "fold": values.one_of(*FOLDS),
    "target_recall": values.fraction,
    "min_score": values.score,
    "max_bytes_per_row": values.size,
    "max_latency_ms": values.milliseconds,
    "sample": values.positive,
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


@dataclass(frozen=True)
class IndexOptions:
    """The options of `index`, under the names of its flags."""

    store: str
    index: str = "auto"
    metric: str | None = None
    target_recall: float | None = None
    max_bytes_per_row: int | None = None
    max_latency_ms: float | None = None
    merge: bool = False
    index_accelerator: str | None = None

    def __post_init__(self) -> None:
        values.read(self, KINDS)


OF_VECTORS = (
    "model", "revision", "pooler", "prompt", "prompt_name", "max_tokens", "normalize", "calibration", "truncate_dim",
    "dtype", "text_column", "id_column", "delimiter",
)  # fmt: skip


@dataclass(frozen=True)
class PairsOptions:
    """The options of `pairs`, under the names of its flags: `input`, or `store`, whose vectors are there."""

    input: tuple[str, ...] | None = None
    store: str | None = None
    snapshot: str | None = None
    format: str = "auto"
    delimiter: str | None = None
    text_column: str | None = None
    id_column: str | None = None
    model: str | None = None
    revision: str | None = None
    pooler: str | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    max_tokens: int | None = None
    normalize: bool | None = None
    calibration: str | None = None
    truncate_dim: int | None = None
    dtype: str | None = None
    k: int = 10
    min_score: float | None = None
    distinct: bool = False
    output: str | None = None
    device: str = "auto"
    tokens_per_batch: int | None = None

    def __post_init__(self) -> None:
        values.read(self, KINDS)
        if (self.input is None) == (self.store is None):
            raise OptionError("one of the arguments --input --store is required, and not both")
        given = [name for name in OF_VECTORS if getattr(self, name) is not None]
        if self.store is not None and given:
            flag = "--" + given[0].replace("_", "-")
            raise OptionError(f"argument {flag}: not allowed with argument --store, which has its vectors")
        _read_calibration(self)


@dataclass(frozen=True)
class FitOptions:
    """The options of `fit`, under the names of its flags: a store for a calibration, files for token statistics."""

    method: str
    output: str
    store: str | None = None
    input: tuple[str, ...] | None = None
    sample: int | None = None
    model: str | None = None
    revision: str | None = None
    format: str | None = None
    delimiter: str | None = None
    text_column: str | None = None

    def __post_init__(self) -> None:
        values.read(self, KINDS)


@dataclass(frozen=True)
class SearchOptions:
    """The options of `search`, under the names of its flags; one of the first four after `store` is given."""

    store: str
    query: tuple[str, ...] | None = None
    queries: str | None = None
    id: tuple[str, ...] | None = None
    query_vectors: str | None = None
    query_prompt: str | None = None
    k: int = 10
    where: str | None = None
    min_score: float | None = None
    fold: str = "best"
    output: str | None = None
    exact: bool = False
    snapshot: str | None = None
    model: str | None = None
    full: bool = False
    format: str | None = None
    delimiter: str | None = None
    text_column: str | None = None
    id_column: str | None = None

    def __post_init__(self) -> None:
        values.read(self, KINDS)
        if self.query is not None and not all(text.strip() for text in self.query):
            raise OptionError("argument --query: it is empty; say what to look for")
        if sum(given is not None for given in (self.query, self.queries, self.id, self.query_vectors)) != 1:
            raise OptionError("one of the arguments --query --queries --id --query-vectors is required, and one alone")
        for name in ("format", "delimiter", "text_column", "id_column"):
            if self.queries is None and getattr(self, name) is not None:
                raise OptionError(f"--{name.replace('_', '-')} is for --queries; leave it out")


@dataclass(frozen=True)
class NeighboursOptions:
    """The options of `neighbours`, under the names of its flags; one of `queries` and `of` is given."""

    store: str
    output: str
    k: int
    queries: tuple[str, ...] | None = None
    of: str | None = None
    min_score: float | None = None
    format: str | None = None
    delimiter: str | None = None
    text_column: str | None = None
    id_column: str | None = None
    query_prompt: str | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        values.read(self, KINDS)
        if (self.queries is None) == (self.of is None):
            raise OptionError("one of the arguments --queries --of is required, and not both")
        for name in ("format", "delimiter", "text_column", "id_column", "query_prompt", "model"):
            if self.of is not None and getattr(self, name) is not None:
                raise OptionError(f"--{name.replace('_', '-')} is for --queries; leave it out")


def _read_calibration(options: EmbedOptions | PairsOptions) -> None:
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
