"""Parts of all jobs' graphs: outputs by type, everything in one list, merging, coders.

Why most steps have one output: for every output of a step that it writes down, Flink reserves 512
network buffers (16 MB) in each slot, and a slot runs three such steps at most
(`deploy/flink/README.md`). So a problem or a fact that ends the work early has no output of its
own. It travels with the work as another field of one dataclass (`RunFact`, `Counting`,
`IndexElement`), and each step passes it on. Work that takes another way has an output of its own,
by `flat_map`.
"""

import functools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    WorkerOptions,
)
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.utils.shared import Shared

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.lease import Renewal, kept_alive
from sentence_beam.transforms.store.tables.table_columns import MADE, list_values, make_record

PROBLEMS = "problems"

AnyOutputs = TypeVar("AnyOutputs")
Item = TypeVar("Item")
# the output that results of a type go to; all others go to the main one
Outputs = Mapping[type, str]


class JobsObject:
    """An object that the steps of one job share in a process, such as the job's model.

    Beam keeps every handle of a shared object for ever. Jobs of one `name` therefore use one
    handle, and each job's own tag keeps it from the object of the job before.
    """

    def __init__(self, name: str):
        self._shared = _make_handle(name)
        self._tag = uuid.uuid4().hex

    def acquire(self, load: Callable[[], Item]) -> Item:
        """Return the object; the first call in a process loads it."""
        loaded: Item = self._shared.acquire(load, tag=self._tag)
        return loaded


@functools.cache
def _make_handle(name: str) -> Shared:
    return Shared()


class JobFn(beam.DoFn):
    """A step of an `EmbedJob`, which renews the run's lease by `_renew` while it works."""

    def __init__(self, job: EmbedJob):
        self._job = job

    def setup(self) -> None:
        run = self._job.run
        self._renew = Renewal(run.root, run.id, run.leased)


def flat_map(
    function: Callable[..., Iterable[Any]], *arguments: Any, outputs: Outputs, main: str
) -> Any:
    """Return a step that sends each element's results to outputs by their type."""
    step = beam.FlatMap(_call_by_type, function, outputs, *arguments)
    return step.with_outputs(*dict.fromkeys(outputs.values()), main=main)


def _call_by_type(
    element: Any, function: Callable[..., Iterable[Any]], outputs: Outputs, *arguments: Any
) -> Iterator[Any]:
    """Yield the results, each tagged with the output of its type."""
    for item in function(element, *arguments):
        tag = outputs.get(type(item))
        if tag is None:
            yield item
        else:
            yield TaggedOutput(tag, item)


def keep_lease(
    element: Any, key: tuple[str, str], step: Callable[..., Any], *arguments: Any
) -> Any:
    """Return what the step makes of an element, and renew the run's lease meanwhile.

    Several results are a list. If nobody waits for the job, nobody else renews the lease, however
    short each element's work is.
    """
    with kept_alive(*key):
        made = step(element, *arguments)
        return list(made) if isinstance(made, Iterator) else made


def set_types(outputs: AnyOutputs, **types: Any) -> AnyOutputs:
    """Return the outputs of a step with several, each with its type, which Beam cannot infer."""
    for name, kind in types.items():
        getattr(outputs, name).element_type = kind
    return outputs


class Together(beam.PTransform):
    """All elements of a collection -> one list of them; no list if there is no element."""

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        return (
            items
            | "OneKey" >> beam.Map(lambda item: (None, item))
            | "Group" >> beam.GroupByKey()
            | "List" >> beam.MapTuple(lambda _, values: list(values))
        )


class Spread(beam.PTransform):
    """The same elements, spread over the workers: separates the steps before and after.

    If elements are processed one after the other there is nothing to spread, and a shuffle would
    only take time.
    """

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        if count_slots(items.pipeline) == 1:
            return items
        return items | "Spread" >> beam.Reshuffle()


class Merge(beam.PTransform):
    """Collections of a few descriptions each -> one collection.

    If one of them is made of another, Flink's translation refuses a bare Flatten: some of these
    must then be materialised, and it accepts that only if all are. It does not code elements anew,
    so all have the type of the result. The runner in this process accepts all of it, and starts in
    half the time.
    """

    def expand(self, parts: Any) -> beam.PCollection:
        if isinstance(parts[0].pipeline.runner, FnApiRunner):
            return parts | "Flatten" >> beam.Flatten()
        apart = [part | f"Apart{i}" >> beam.Reshuffle() for i, part in enumerate(parts)]
        merged = apart | "Flatten" >> beam.Flatten()
        for part in apart:
            part.element_type = merged.element_type
        return merged


class MergeAll(beam.CombineFn):
    """Merges values that have `merge`, in any order; `nothing` is the value of no input."""

    def __init__(self, nothing: Any):
        self._nothing = nothing

    def create_accumulator(self) -> Any:
        """Return the value of no input."""
        return self._nothing

    def add_input(self, total: Any, value: Any) -> Any:
        """Return the total with one more value."""
        return total.merge(value)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Return the totals of several workers as one."""
        return reduce(self.add_input, accumulators, self._nothing)

    def extract_output(self, total: Any) -> Any:
        """Return the total of all elements."""
        return total


def check_worker(run: Run) -> None:
    """Raise SentenceBeamError if worker and submitter have different versions of Beam."""
    wanted = run.versions.get("apache-beam")
    installed = beam.__version__
    if wanted not in (None, installed):
        raise SentenceBeamError(
            f"a worker has apache-beam {installed}, the machine that submitted the job {wanted}; "
            "install one version on both (workers: in their image or environment)"
        )


def count_slots(pipeline: beam.Pipeline) -> int | None:
    """Return the number of elements that are processed at once, None if it is not known.

    In process: the workers. On Flink: the parallelism. On Dataflow: the most workers there may be,
    times their threads.
    """
    options = pipeline.options
    if isinstance(pipeline.runner, FnApiRunner):
        return options.view_as(DirectOptions).direct_num_workers or os.cpu_count()
    parallelism = options.view_as(FlinkRunnerOptions).parallelism
    if parallelism and parallelism > 0:
        return int(parallelism)
    workers = options.view_as(WorkerOptions).max_num_workers
    threads = options.view_as(DebugOptions).number_of_worker_harness_threads
    return workers * threads if workers and threads else None


class UnitRecordCoder(beam.coders.Coder):
    """A UnitRecord as the plain tuple of its values, by Beam's own coder."""

    def __init__(self) -> None:
        self._values = beam.coders.FastPrimitivesCoder()

    def encode(self, value: UnitRecord) -> bytes:
        return self._values.encode(list_values(value))

    def decode(self, encoded: bytes) -> UnitRecord:
        return make_record(dict(zip(MADE.names, self._values.decode(encoded), strict=True)))

    def is_deterministic(self) -> bool:
        return True


def register_coders() -> None:
    """Register the coder of UnitRecords: a large run has a million of them."""
    beam.coders.registry.register_coder(UnitRecord, UnitRecordCoder)
