"""The plain runner of tests makes of a graph what Beam's own runner makes of it."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict, AsIter, AsList, AsSingleton, TaggedOutput
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from helpers import eager, plain_runner

from sentence_beam.transforms.beam.graph import Merge, MergeAll, Spread, Together, flat_map

PAIRS = [("a", 1), ("b", 2), ("a", 3)]


class Counting(beam.DoFn):
    """The number of elements of each bundle, by every method that Beam calls."""

    def setup(self) -> None:
        self._calls = ["setup"]

    def start_bundle(self) -> None:
        self._calls.append("start")

    def process(self, element: Any) -> Iterator[Any]:
        self._calls.append("process")
        yield str(self._calls)

    def finish_bundle(self) -> Iterator[Any]:
        yield beam.transforms.window.GlobalWindows.windowed_value(str([*self._calls, "finish"]))


def _typed(item: Any) -> list[Any]:
    return [str(item[1]), item[1]]


def _ordered(pair: tuple[str, Any]) -> tuple[str, list[Any]]:
    key, values = pair
    return key, sorted(values)


class Sides(beam.PTransform):
    """Side inputs of every kind."""

    def expand(self, pairs: beam.PCollection) -> beam.PCollection:
        numbers = pairs | "Numbers" >> beam.Values()
        total = numbers | beam.CombineGlobally(sum)
        return pairs | beam.Map(
            lambda pair, one, some, all_, by: (pair, one, sorted(some), sorted(all_), by["b"]),
            AsSingleton(total),
            AsIter(numbers),
            AsList(numbers),
            by=AsDict(pairs),
        )


class Outputs(beam.PTransform):
    """Outputs with tags, merged again."""

    def expand(self, pairs: beam.PCollection) -> beam.PCollection:
        by_type = pairs | "ByType" >> flat_map(_typed, outputs={str: "words"}, main="others")
        tagged = pairs | "Tagged" >> beam.FlatMap(
            lambda pair: [pair, TaggedOutput("keys", pair[0])]
        ).with_outputs("keys", main="pairs")
        return (by_type.words, by_type.others, tagged.keys, tagged.pairs) | Merge()


GRAPHS: dict[str, Callable[[], beam.PTransform]] = {
    "group": lambda: beam.GroupByKey() | beam.Map(_ordered),
    "combine": lambda: beam.CombinePerKey(sum),
    "empty total": lambda: beam.Filter(lambda _: False) | beam.CombineGlobally(MergeAll(None)),
    "together": lambda: Together() | beam.Map(sorted),
    "spread": Spread,
    "reshuffle": beam.Reshuffle,
    "sides": Sides,
    "outputs": Outputs,
    "bundle": lambda: beam.ParDo(Counting()),
}


class All(beam.PTransform):
    """Every graph, over the same elements."""

    def expand(self, pairs: beam.PCollection) -> dict[str, beam.PCollection]:
        return {name: pairs | name >> graph() for name, graph in GRAPHS.items()}


@pytest.fixture(scope="module")
def made() -> list[dict[str, list[Any]]]:
    """What each graph gives, on Beam's own runner and on the plain one."""
    found = []
    for context in (nullcontext, plain_runner.plain_runner):
        with context():
            found.append(eager.outputs(All(), PAIRS, names=tuple(GRAPHS)))
    return found


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_gives_what_it_gives_on_beams_own_runner(
    made: list[dict[str, list[Any]]], name: str
) -> None:
    usual, plain = (sorted(map(repr, outputs[name])) for outputs in made)
    assert usual == plain


def _fail(pair: tuple[str, int]) -> None:
    raise ValueError(f"no use for {pair}")


def test_an_error_names_its_step() -> None:
    said = []
    for context in (nullcontext, plain_runner.plain_runner):
        with context(), pytest.raises(ValueError, match="no use for") as error:
            eager.run(beam.Map(_fail), PAIRS)
        said.append(str(error.value).splitlines()[0])
    assert said[0] == said[1]
    assert "[while running 'Transform" in str(error.value)


class Locked:
    """A function that cannot be packed."""

    def __init__(self) -> None:
        self._numbers = (number for number in ())

    def __call__(self, pair: tuple[str, int]) -> tuple[str, int]:
        return pair


def test_what_cannot_be_packed_does_not_run() -> None:
    with plain_runner.plain_runner(), pytest.raises(Exception, match="pickle"):
        eager.run(beam.Map(Locked()), PAIRS)


class Seen(beam.DoFn):
    """A DoFn with state."""

    SEEN = beam.transforms.userstate.ReadModifyWriteStateSpec("seen", beam.coders.VarIntCoder())

    def process(self, pair, seen=beam.DoFn.StateParam(SEEN)):  # type: ignore[no-untyped-def]  # noqa: B008
        seen.write((seen.read() or 0) + 1)
        yield pair[0], seen.read()


def test_what_it_does_not_know_runs_on_beams_own_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = []
    run = FnApiRunner.run_pipeline
    monkeypatch.setattr(
        FnApiRunner, "run_pipeline", lambda *given: usual.append(given) or run(*given)
    )
    with plain_runner.plain_runner():
        eager.run(beam.Map(str), PAIRS)
        assert not usual
        assert sorted(eager.run(beam.ParDo(Seen()), PAIRS)) == [("a", 1), ("a", 2), ("b", 1)]
        assert len(usual) == 1
        for flag in (
            "--direct_runner_bundle_repeat=1",
            "--direct_num_workers=2",
            "--direct_running_mode=multi_threading",
        ):
            options = beam.options.pipeline_options.PipelineOptions([flag, "--runner=FnApiRunner"])
            with beam.Pipeline(options=options) as pipeline:
                _ = pipeline | beam.Create(PAIRS) | beam.Map(str)
    assert len(usual) == 4
