"""A runner for modules of tests that run many small pipelines: Beam's graph, step by step.

For a pipeline of forty rows Beam's own runner describes 70 steps in protocol buffers, translates
them, packs and unpacks each function, and starts twelve bundles with a thread or two each: two
thirds of the time of the run. This runner calls the same DoFns by Beam's own DoFnRunner, one
collection after the other. It groups by coded keys, and what is grouped passes through its coder.
What is spread over workers passes through its coder only. A function is packed and unpacked once
in a process.

Pipelines with state, timers, splittable DoFns, several workers or another running mode run on
Beam's own runner.
"""

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import registry
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.common import DoFnRunner, DoFnSignature, Receiver
from apache_beam.runners.pipeline_utils import group_by_key_input_visitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner, RunnerResult
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms import core
from apache_beam.transforms.sideinputs import SideInputMap
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.typehints import coerce_to_kv_type
from apache_beam.utils.windowed_value import WindowedValue

LEAVES = (core.Impulse, core.ParDo, core.GroupByKey, core.Flatten)
Elements = list[WindowedValue]
_packed: set[Hashable] = set()


@contextlib.contextmanager
def plain_runner() -> Iterator[None]:
    """Run pipelines of one worker in this process without Beam's own runner, if they can."""
    usual = FnApiRunner.run_pipeline

    def run_pipeline(self: FnApiRunner, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        steps = _Steps()
        pipeline.visit(steps)
        if not steps.all_plain or not _has_one_worker(options):
            return usual(self, pipeline, options)
        pipeline.visit(group_by_key_input_visitor(True))
        _run(steps.found)
        return RunnerResult(PipelineState.DONE, {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam.Reshuffle, "expand", _spread_by(beam.Reshuffle.expand))
        patch.setattr(FnApiRunner, "run_pipeline", run_pipeline)
        patch.setattr(pickler, "roundtrip", _packing_once(pickler.roundtrip))
        yield


def _spread_by(
    expand: Callable[[beam.Reshuffle, beam.PCollection], beam.PCollection],
) -> Callable[[beam.Reshuffle, beam.PCollection], beam.PCollection]:
    """Beam's Reshuffle; where there is one worker, a step that packs and unpacks each element."""

    def spread(self: beam.Reshuffle, items: beam.PCollection) -> beam.PCollection:
        if not _has_one_worker(items.pipeline.options):
            return expand(self, items)
        coder = registry.get_coder(items.element_type)
        passed = items | "Pass" >> beam.ParDo(_Pass(coder))
        passed.element_type = items.element_type
        return passed

    return spread


class _Pass(beam.DoFn):
    """An element -> the same, as its coder reads what it wrote."""

    def __init__(self, coder: Any):
        self._coder = coder

    def process(self, item: Any) -> Iterator[Any]:
        yield self._coder.decode(self._coder.encode(item))


def _has_one_worker(options: PipelineOptions) -> bool:
    """Whether Beam's own runner would process each element once, in this thread."""
    direct = options.view_as(DirectOptions)
    if direct.direct_runner_bundle_repeat or direct.direct_test_splits:
        return False
    return direct.direct_running_mode == "in_memory" and direct.direct_num_workers == 1


class _Steps(PipelineVisitor):
    """The steps of a pipeline that are made of no others, in an order in which they can run."""

    def __init__(self) -> None:
        self.found: list[AppliedPTransform] = []
        self.all_plain = True

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        self.found.append(transform_node)
        self.all_plain = self.all_plain and _is_plain(transform_node)


def _is_plain(applied: AppliedPTransform) -> bool:
    """Whether a step needs nothing but elements in the global window."""
    step = applied.transform
    if not isinstance(step, LEAVES):
        return False
    windows = [output.windowing.windowfn for output in applied.outputs.values()]
    if not all(isinstance(windowfn, GlobalWindows) for windowfn in windows):
        return False
    if not isinstance(step, core.ParDo):
        return True
    signature = DoFnSignature(step.fn)
    return not (signature.is_stateful_dofn() or signature.is_splittable_dofn())


def _run(steps: list[AppliedPTransform]) -> None:
    """Run steps one after the other; each collection is a list until all are done."""
    made: dict[beam.PCollection, Elements] = {}
    for applied in steps:
        step = applied.transform
        inputs = [made[given] for given in applied.inputs if given in made]
        if isinstance(step, core.Impulse):
            outputs = {None: [GlobalWindows.windowed_value(b"")]}
        elif isinstance(step, core.Flatten):
            outputs = {None: list(itertools.chain(*inputs))}
        elif isinstance(step, core.GroupByKey):
            outputs = {None: _grouped(applied, inputs[0])}
        else:
            outputs = _processed(applied, inputs[0], made)
        for tag, collection in applied.outputs.items():
            made[collection] = outputs[tag]


def _grouped(applied: AppliedPTransform, elements: Elements) -> Elements:
    """The values of each key, as their coder reads what it wrote."""
    coder = registry.get_coder(coerce_to_kv_type(applied.inputs[0].element_type))
    key_coder = coder.key_coder().as_deterministic_coder(applied.full_label)
    value_coder = coder.value_coder()
    groups: dict[bytes, list[Any]] = {}
    for element in elements:
        key, value = element.value
        values = groups.setdefault(key_coder.encode(key), [])
        values.append(value_coder.decode(value_coder.encode(value)))
    return [
        GlobalWindows.windowed_value((key_coder.decode(key), values))
        for key, values in groups.items()
    ]


class _Kept(Receiver):
    """The elements of an output."""

    def __init__(self) -> None:
        self.elements: Elements = []

    def receive(self, windowed_value: WindowedValue) -> None:
        self.elements.append(windowed_value)


def _processed(
    applied: AppliedPTransform, elements: Elements, made: dict[beam.PCollection, Elements]
) -> dict[str | None, Elements]:
    """The outputs of a step that processes each element."""
    step = applied.transform
    outputs = {tag: _Kept() for tag in (None, *applied.outputs)}
    sides = [
        SideInputMap(type(side), side._view_options(), made[side.pvalue])
        for side in applied.side_inputs
    ]
    runner = DoFnRunner(
        step.fn,
        step.args,
        step.kwargs,
        sides,
        applied.inputs[0].windowing,
        tagged_receivers=outputs,
        step_name=applied.full_label,
    )
    try:
        runner.setup()
        runner.start()
        for element in elements:
            runner.process(element)
        runner.finish()
    finally:
        runner.teardown()
    return {tag: kept.elements for tag, kept in outputs.items()}


def _packing_once(roundtrip: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Beam's copies by packing and unpacking; of DoFns only the first of each code."""

    def copied(what: Any) -> Any:
        if not isinstance(what, core.DoFn):
            return roundtrip(what)
        code = _code_of(what)
        if code in _packed:
            return what
        copy = roundtrip(what)
        _packed.add(code)
        return copy

    return copied


def _code_of(fn: core.DoFn) -> Hashable:
    """The class of a DoFn, the code of its function and of the functions that this one calls."""
    function = getattr(fn, "_fn", None)
    cells = getattr(function, "__closure__", None) or ()
    called = [cell.cell_contents for cell in cells]
    return (type(fn), *(getattr(it, "__code__", type(it)) for it in (function, *called)))
