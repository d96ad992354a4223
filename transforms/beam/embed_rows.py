"""EmbedRows: rows of any pipeline -> the same with their vectors."""

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.resources import AcceleratorHint
from apache_beam.typehints import typehints
from apache_beam.utils.shared import Shared

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.beam.chunks import PIECE_TYPES, list_fields, make_row_type
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.beam.runners import works_in_process
from sentence_beam.transforms.space import Machine, Recipe, Space
from sentence_beam.transforms.space.model_files import DEFAULT_MODEL
from sentence_beam.transforms.steps.embed.element_rows import RowEmbedder, RowsJob
from sentence_beam.transforms.steps.embed.row_shapes import REASON
from sentence_beam.transforms.steps.embed.row_windows import EmbeddedElement

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import Encoder

REJECTED = "rejected"
COUNTED = (
    "rows", "rejected", "tokens", "truncated", "lost", "embedded", "duplicates",
    "real", "padded", "fallbacks", "oom_splits",
)  # fmt: skip


class EmbeddedRows(dict[str, beam.PCollection]):
    """The two outputs, by name for Beam YAML and as attributes."""

    @property
    def rows(self) -> beam.PCollection:
        """The rows with their vectors."""
        return self["rows"]

    @property
    def rejected(self) -> beam.PCollection:
        """The rows that are not embedded, with the reason."""
        return self[REJECTED]


class EmbedRows(beam.PTransform):
    """Rows -> `rows`, the same with vectors, and `rejected`, those without one, with a `reason`.

    A row is a dict or a `beam.Row` (or NamedTuple) whose field `text` has the text, an (id, text)
    pair, or many in an Arrow batch. Dicts and rows get `embedding` (float32 [d]), `norm`, `tokens`
    and `truncated`, batches the same as columns; pairs become (id, embedding), rejected ones (id,
    text, reason).

    With `chunks` rows are documents. Each becomes a row for each piece, with the piece as its text,
    and `piece`, `pieces`, `start`, `end`, `headings`; pairs become ((id, piece), embedding). Names
    in `chunk_prefix` are those of fields; a document whose prefix leaves no token for its pieces is
    rejected.

    `model`, `pooler` and the keywords after them mean the same as the flags of `embed`. Rows are
    held until they have the tokens of a unit or their bundle ends. If another machine does the
    work, its files must make the same `space`, or it fails; an engine needs a `dtype`, because its
    workers may have other processors. Raises OptionError, when the graph is made, for options or a
    model that do not work.
    """

    def __init__(
        self,
        model: StrPath = DEFAULT_MODEL,
        *,
        text: str = "text",
        pooler: str = "auto",
        dtype: str = "auto",
        calibration: StrPath | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_tokens: int | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        revision: str | None = None,
        chunks: str = "none",
        chunk_prefix: str = "",
        device: str = "auto",
        tokens_per_batch: int | None = None,
        deterministic: bool = False,
    ):
        super().__init__()
        options: dict[str, Any] = {
            "model": model,
            "revision": revision,
            "pooler": pooler,
            "dtype": dtype,
            "calibration": calibration,
            "prompt": prompt,
            "prompt_name": prompt_name,
            "max_tokens": max_tokens,
            "normalize": normalize,
            "truncate_dim": truncate_dim,
            "chunks": chunks,
        }
        machine = Machine(device, tokens_per_batch, deterministic)
        self._job = RowsJob.from_recipe(Recipe.from_options(options), machine, text, chunk_prefix)

    @property
    def space(self) -> Space:
        """The identity of the vectors; `.id` is its hash."""
        return self._job.space

    def expand(self, rows: beam.PCollection) -> Any:
        embedded, rejected = infer_types(rows.element_type, self._job)
        runner = type(rows.pipeline.runner).__name__.lower()
        in_process = works_in_process(runner, rows.pipeline.options)
        job = self._job.on_workers(not in_process, AcceleratorHint.urn in self.get_resource_hints())
        made = rows | "Embed" >> beam.ParDo(EmbedRowsFn(job, Shared())).with_outputs(
            REJECTED, main="rows"
        )
        # Beam 2.77 loses what a bundle's end gives to a step that takes batches, as WriteToParquet
        # does.
        return EmbeddedRows(
            rows=made.rows | "Rows" >> beam.Map(lambda row: row).with_output_types(embedded),
            rejected=made[REJECTED]
            | "Rejected" >> beam.Map(lambda row: row).with_output_types(rejected),
        )


class EmbedRowsFn(beam.DoFn):
    """Elements of a bundle -> elements with vectors, each in its own window.

    A process has one model.
    """

    def __init__(self, job: RowsJob, shared: Shared):
        self._job = job
        self._shared = shared
        self._metrics = StageMetrics("embed", COUNTED)

    def setup(self) -> None:
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None

    def start_bundle(self) -> None:
        self._rows = RowEmbedder(self._job, self._load, beam.Row, self._record_figures)

    # Beam gives an element of several windows once for each if a DoFn requests the window.
    def process(
        self,
        element: Any,
        window: Any = beam.DoFn.WindowParam,
        whole: Any = beam.DoFn.WindowedValueParam,
    ) -> Iterator[Any]:
        yield from map(_make_output, self._rows.add(element, whole))

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(_make_output, self._rows.finish())

    def _load(self) -> "Encoder":
        # Held on self too: Shared keeps only the last model acquired.
        with self._lock:
            if self._encoder is None:
                self._encoder = self._shared.acquire(self._job.load)
            return self._encoder

    def _record_figures(self, counts: Mapping[str, int], figures: Mapping[str, float]) -> None:
        self._metrics.count(counts)
        self._metrics.update(figures)


def _make_output(result: EmbeddedElement) -> Any:
    """Return a result for its output, with the window and time of its element."""
    value = result.place.with_value(result.value)
    return TaggedOutput(REJECTED, value) if result.rejected else value


def infer_types(kind: Any, job: RowsJob) -> tuple[Any, Any]:
    """Return the types of embedded and rejected elements for a type of elements.

    Raises OptionError for rows without the text, or with a field that is to be added.
    """
    fields = list_fields(kind)
    if fields is not None:
        return _find_row_types(fields, job)
    if isinstance(kind, typehints.TupleHint.TupleConstraint) and len(kind.tuple_types) == 2:
        job.check_prefix([])
        name, text = kind.tuple_types
        name_of_vector = typehints.Tuple[name, int] if job.adds_pieces else name
        return typehints.Tuple[name_of_vector, np.ndarray], typehints.Tuple[name, text, str]
    if isinstance(kind, typehints.DictHint.DictConstraint):
        return typehints.Dict[str, typehints.Any], typehints.Dict[str, typehints.Any]
    if kind in (pa.RecordBatch, pa.Table):
        return kind, kind
    return typehints.Any, typehints.Any


def _find_row_types(fields: dict[str, Any], job: RowsJob) -> tuple[Any, Any]:
    if job.text not in fields:
        raise OptionError(
            f"rows have no field {job.text!r}, but {', '.join(fields)}; say text='...'"
        )
    job.check_names(list(fields))
    job.check_prefix(list(fields))
    added: dict[str, Any] = {"norm": float, "tokens": int, "truncated": bool}
    if job.adds_pieces:
        added |= PIECE_TYPES
    added["embedding"] = typehints.Sequence[np.float32]
    return make_row_type(fields, added), make_row_type(fields, {REASON: str})
