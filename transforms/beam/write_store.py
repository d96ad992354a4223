"""WriteStore: the rows of any pipeline -> a store, by content."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any, Unpack

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.pvalue import AsList, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.base.values import StrPath, as_text
from sentence_beam.transforms.beam.chunks import list_fields
from sentence_beam.transforms.beam.content import make_empty_blocks
from sentence_beam.transforms.beam.embed import EmbedBlocks, PackedBlocks
from sentence_beam.transforms.beam.finish import finish_run
from sentence_beam.transforms.beam.graph import (
    PROBLEMS,
    JobFn,
    MergeAll,
    Spread,
    check_worker,
    flat_map,
)
from sentence_beam.transforms.beam.runners import works_in_process
from sentence_beam.transforms.corpus.blocks import PackedRows
from sentence_beam.transforms.steps.commit.commit_run import raise_failure
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.options.keywords import WriteKeywords
from sentence_beam.transforms.steps.options.resolve import Resolved, estimate_index_ram
from sentence_beam.transforms.steps.options.rows_options import (
    make_options_for_rows,
    resolve_for_rows,
)
from sentence_beam.transforms.steps.plan.collection import (
    CollectionPacker,
    Engine,
    ToPack,
    begin_collection,
    check_named,
)
from sentence_beam.transforms.steps.plan.row_batches import RowBatch, RowBatcher
from sentence_beam.transforms.steps.plan.row_summary import RowsSummary
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.lease import kept_alive


class WriteStore(beam.PTransform):
    """Rows -> the Result of the run that writes them into a store, by content.

    A row is a dict, a `beam.Row` (or NamedTuple), an (id, text) pair, or many in an Arrow batch or
    table; `text` and `id` name its fields. The rows are the whole collection: others leave the
    store, within `max_deletes`. Unchanged rows keep their vectors. `options` are those of
    `sentence-beam embed`, except those for files.

    The model and the store's last snapshot are read when the graph is made. When it runs, the run
    takes the store's lease after all rows have been counted. One graph makes one snapshot; a second
    execution with other rows fails. A run that fails raises its error in its last step, and the
    store is as it was.

    Raises OptionError, when the graph is made, for options, a model or rows that do not work.
    """

    def __init__(
        self,
        store: StrPath,
        *,
        text: str | None = None,
        id: str | None = None,
        **options: Unpack[WriteKeywords],
    ):
        super().__init__()
        self._asked = make_options_for_rows(as_text(store), text, id, options)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        if not rows.is_bounded:
            raise OptionError(
                "WriteStore needs all rows of a collection, and an unbounded PCollection has no"
                " end; read a bounded part of the source"
            )
        engine = find_engine(rows.pipeline)
        resolved = resolve_for_rows(self._asked, engine.in_process)
        job = resolved.job
        fields = list_fields(rows.element_type)
        if fields is not None:
            check_named(set(fields), fields, job)
        resolved.keep_calibration()
        return self._write(rows, resolved, engine)

    def _write(
        self, rows: beam.PCollection, resolved: Resolved, engine: Engine
    ) -> beam.PCollection:
        job = resolved.job
        options = self._asked
        batches = (
            rows
            | "Window" >> beam.WindowInto(GlobalWindows())
            | "Batch" >> beam.ParDo(BatchRowsFn(job)).with_output_types(RowBatch)
        )
        begun = (
            batches
            | "Summaries" >> beam.Map(lambda batch: batch.summary)
            | "Count" >> beam.CombineGlobally(MergeAll(RowsSummary()))
            | "Plan"
            >> flat_map(
                begin_collection,
                job,
                engine,
                outputs={Problem: PROBLEMS},
                main="buckets",
            )
        )
        packed = (
            batches
            | "SpreadBatches" >> Spread()
            | "Pack"
            >> beam.ParDo(PackRowsFn(job), AsList(begun.buckets)).with_outputs(
                PROBLEMS, main="blocks"
            )
        )
        empty = begun.buckets | "Empty" >> beam.FlatMap(
            lambda work: make_empty_blocks(work.buckets)
        )
        blocks = (packed.blocks, empty) | "Blocks" >> beam.Flatten()
        hints = _drop_missing(accelerator=options.accelerator, min_ram=options.min_ram)
        embedded = PackedBlocks(blocks, packed.problems) | "Embed" >> EmbedBlocks(job, hints)
        settled_parts = (embedded.units, embedded.problems, begun[PROBLEMS])
        indexing = _drop_missing(
            accelerator=options.accelerator, min_ram=estimate_index_ram(resolved, options.min_ram)
        )
        result = finish_run(settled_parts, embedded.ranges, resolved, indexing)
        # A stage of its own: what raises is tried again, and the commit should not be.
        return result | "Recorded" >> beam.Reshuffle() | "Raise" >> beam.Map(raise_failure)


def find_engine(pipeline: beam.Pipeline) -> Engine:
    """Return the engine of a pipeline, by its runner and options."""
    name = type(pipeline.runner).__name__
    job = pipeline.options.view_as(GoogleCloudOptions).job_name or "a pipeline with WriteStore"
    return Engine(name, job, works_in_process(name.lower(), pipeline.options))


def _drop_missing(**hints: str | None) -> dict[str, str]:
    return {name: hint for name, hint in hints.items() if hint}


class BatchRowsFn(beam.DoFn):
    """Rows of a bundle -> batches of them, and problems in their place."""

    def __init__(self, job: EmbedJob):
        self._job = job

    def start_bundle(self) -> None:
        self._batcher = RowBatcher(self._job)

    def process(self, row: Any) -> Iterator[RowBatch]:
        yield from self._batcher.add(row)

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(GlobalWindows.windowed_value, self._batcher.finish())


class PackRowsFn(JobFn):
    """Batches of a bundle -> (group of buckets, PackedRows); nothing without `work`."""

    def start_bundle(self) -> None:
        self._packer: CollectionPacker | None = None
        self._key: tuple[int, ...] = ()

    def process(self, batch: RowBatch, work: Sequence[ToPack]) -> Iterator[Any]:
        for collection in work:
            if self._packer is None:
                self._packer = CollectionPacker(collection, self._job)
                self._key = astuple(collection.buckets)
            try:
                check_worker(self._job.run)
                self._renew()
                with kept_alive(self._job.root, self._job.run.id):  # cutting documents takes long
                    blocks = list(self._packer.add(batch))
                yield from map(self._add_key, blocks)
            except SentenceBeamError as error:
                yield TaggedOutput(PROBLEMS, Problem.from_error(error))

    def finish_bundle(self) -> Iterator[Any]:
        if self._packer is not None:
            for block in self._packer.finish():
                yield GlobalWindows.windowed_value(self._add_key(block))

    def _add_key(self, block: tuple[int, PackedRows]) -> tuple[tuple[int, ...], PackedRows]:
        group, rows = block
        return (*self._key, group), rows
