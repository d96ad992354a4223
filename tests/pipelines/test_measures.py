"""What a run says of its stages: in result.json, in the summary, in sidecars and as Beam's
metrics.

Covers transforms/base/measures.py.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from helpers.clock import ClockOfEachThread
from helpers.commands import Run
from helpers.corpora import files_in, manifest_of, sentences, write_parquet
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.pipelines.embed import build, parser
from sentence_beam.transforms.base.measures import EMBED_PARTS, STAGES
from sentence_beam.transforms.beam import embed as beam_embed
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.steps.embed import cutting, inputs
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.store.shards import shard_bytes


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(cached_beam_options: None) -> None:
    """Beam's own runner: the figures that it counts are part of what is tested."""


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


UNITS = ("--unit-tokens", 60)


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Forty texts in four row groups."""
    return write_parquet(inputs / "a.parquet", sentences(40), row_group_size=10)


def result_of(store: Path) -> dict[str, Any]:
    """The record of the current snapshot's run."""
    manifest = manifest_of(store)
    assert manifest is not None
    return json.loads((store / "runs" / manifest["run"] / "result.json").read_text())


class SlowClock(ClockOfEachThread):
    """A time of each thread's own, which stands still but for what is slowed."""

    def slowed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, taking a second more."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.now += 1
            return function(*arguments, **options)

        return call

    def slowly_read(self, span: Any, *arguments: Any) -> Iterator[Any]:
        """The units of a span, each taking a second more."""
        for unit in READ(span, *arguments):
            self.now += 1
            yield unit


READ, FINISH = cutting.read_span, Encoder.finish


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SlowClock:
    """The clock by which stages are measured."""
    clock = SlowClock()
    monkeypatch.setattr("sentence_beam.transforms.base.measures.perf_counter", clock.perf_counter)
    return clock


@variants("part", ["read", "reuse", "load", "tokenise", "forward", "write"], kept=(0, 4))
def test_the_figures_name_the_part_that_is_slow(
    part: str,
    clock: SlowClock,
    embed: Run,
    glob: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slowed: dict[str, tuple[Any, str, Any]] = {
        "read": (cutting, "read_span", clock.slowly_read),
        "reuse": (inputs, "row_hashes", clock.slowed(inputs.row_hashes)),
        "load": (beam_embed, "load_checked_encoder", clock.slowed(beam_embed.load_checked_encoder)),
        "tokenise": (Encoder, "tokenize", clock.slowed(Encoder.tokenize)),
        "forward": (Encoder, "finish", lambda *arguments: replace(FINISH(*arguments), seconds=1.0)),
        "write": (shard_bytes, "shard_bytes", clock.slowed(shard_bytes.make_shard_bytes)),
    }
    monkeypatch.setattr(*slowed[part])
    out = embed(glob, *UNITS).ok().out
    result = result_of(store)
    units, found = len(files_in(store, "embeddings")), result["measures"]["embed"]
    assert result["limit"] == part
    assert f"; the limit is {part}\n" in out
    assert units > 2
    assert found[f"{part}_ms"]["sum"] == 1000 * (1 if part == "load" else units)
    assert all(found[f"{part}_ms"]["sum"] >= found[other]["sum"] for other in EMBED_PARTS)


@pytest.mark.parametrize("partition", ["content"])
def test_reading_that_is_a_step_of_its_own_is_told(
    clock: SlowClock, embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "read_span", clock.slowly_read)
    embed(glob, *UNITS).ok()
    result = result_of(store)
    assert result["limit"] == "read"
    # a second for each row group at least
    assert result["measures"]["embed"]["read_ms"]["sum"] >= 3999


@pytest.mark.parametrize("partition", ["file", "content"])
def test_every_stage_is_measured_and_sizes_are_those_of_the_manifest(
    embed: Run, glob: Path, store: Path
) -> None:
    embed(glob, *UNITS).ok()
    manifest, measures = manifest_of(store), result_of(store)["measures"]
    assert manifest is not None
    for stage in ("plan", "embed", "commit"):
        assert set(measures[stage]) == {figure.name for figure in STAGES[stage]}
    written = [unit for unit in units_of(store, manifest) if unit["path"]]
    sizes = {"rows": "rows", "bytes": "bytes"}
    for name, field in sizes.items():
        summary = measures["embed"][f"unit_{name}"]
        assert (summary["sum"], summary["max"]) == (
            sum(u[field] for u in written),
            max(u[field] for u in written),
        )
    assert measures["embed"]["unit_tokens"]["sum"] == manifest["tokens"]["real"]
    assert measures["plan"]["file_ms"]["count"] == 1


def test_an_index_is_measured_when_it_is_trained_and_when_it_follows(
    embed: Run, glob: Path, store: Path
) -> None:
    pytest.importorskip("faiss")
    embed(glob, *UNITS, "--index", "Flat").ok()
    trained = result_of(store)["measures"]["index"]
    assert set(trained) == {"sample_ms", "train_ms", "segment_ms", "recall_ms"}
    write_parquet(glob, [*sentences(40), "one more"], row_group_size=10)
    embed(glob).ok()
    followed = result_of(store)["measures"]["index"]
    assert set(followed) == {"rows_ms", "match_ms", "decide_ms", "segment_ms", "recall_ms"}
    assert {*trained, *followed} == {figure.name for figure in STAGES["index"]}
    embed(glob).ok()
    assert "segment_ms" not in result_of(store)["measures"]["index"]


def test_the_forward_pass_waits_for_the_first_unit_from_its_reading_on(
    embed: Run, glob: Path, store: Path
) -> None:
    embed(glob).ok()
    found = {
        name: summary["sum"] for name, summary in result_of(store)["measures"]["embed"].items()
    }
    assert found["wait_ms"] >= found["read_ms"] + found["load_ms"] + found["tokenise_ms"]


def test_units_that_are_not_written_yet_are_the_queue(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, third, passed = Encoder.start, threading.Event(), []

    def counted(self: Encoder, *arguments: Any, **options: Any) -> Any:
        found = start(self, *arguments, **options)
        passed.append(None)
        if len(passed) == 3:
            third.set()
        return found

    def held_back(*arguments: Any) -> bytes:
        third.wait(60)
        return real(*arguments)

    real = shard_bytes.make_shard_bytes
    monkeypatch.setattr(Encoder, "start", counted)
    monkeypatch.setattr(shard_bytes, "make_shard_bytes", held_back)
    embed(glob, *UNITS).ok()
    assert result_of(store)["measures"]["embed"]["queue"]["max"] >= 1


def test_units_of_an_attempt_that_broke_off_keep_its_figures(
    embed: Run, glob: Path, store: Path
) -> None:
    embed(glob, *UNITS).ok()
    sidecars = [store / name for name in files_in(store, "sidecars")]
    for sidecar in sidecars:
        record = json.loads(sidecar.read_text())
        assert {"read_ms", "tokenise_ms", "forward_ms", "write_ms", "queue"} <= set(
            record["measures"]
        )
        sidecar.write_text(
            json.dumps(record | {"measures": record["measures"] | {"forward_ms": 5000.0}})
        )
    for path in (
        *(store / "manifests").glob("*.json"),
        store / "manifest.json",
        store / "report.json",
    ):
        path.unlink()  # as if it had ended just before the commit
    embed(glob, *UNITS).ok()
    found = result_of(store)["measures"]["embed"]["forward_ms"]
    assert found == {
        "count": len(sidecars),
        "sum": 5000 * len(sidecars),
        "p50": 5000,
        "p95": 5000,
        "max": 5000,
    }


def test_units_that_stayed_as_they_were_are_not_measured_again(
    embed: Run, glob: Path, store: Path
) -> None:
    embed(glob, *UNITS).ok()
    embed(glob, *UNITS).ok()
    result = result_of(store)
    assert result["measures"]["embed"] == {}
    assert result["limit"] == ""


def test_beam_has_the_figures_as_distributions(glob: Path, store: Path, model: Path) -> None:
    named = [
        "--input",
        str(glob),
        "--store",
        str(store),
        "--model",
        str(model),
        "--unit-tokens",
        "60",
    ]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    options = EmbedOptions(**vars(parser().parse_args(named)))
    build(pipeline, resolve_run(options, None, local=True))
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("sentence_beam"))[
        "distributions"
    ]
    distributions = {item.key.metric.name: item.committed for item in found}
    recorded = result_of(store)["measures"]
    stages = ("plan", "embed", "commit")
    assert set(distributions) == {name for stage in stages for name in recorded[stage]} - {
        "planned_ms"
    }
    for name in ("unit_rows", "unit_tokens", "unit_bytes", "queue"):
        of_units = recorded["embed"][name]
        assert (distributions[name].count, distributions[name].sum) == (
            of_units["count"],
            of_units["sum"],
        )
