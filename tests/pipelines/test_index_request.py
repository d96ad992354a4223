"""The request for an index: its target and budgets are given to `index`, and kept by `embed`."""

from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_lines

import sentence_beam as sb
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import Resolved, resolve_run
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.manifest import read_manifest

pytest.importorskip("faiss")

BUDGETS = {"target_recall": 0.5, "max_bytes_per_row": 40, "max_latency_ms": 3.0}
REQUEST = IndexRequest(**BUDGETS, range_bytes=2000)  # type: ignore[arg-type]


@pytest.fixture
def indexed(embed: Run, inputs: Path, store: Path) -> Path:
    """A store of 60 rows whose index was built for `REQUEST`."""
    write_lines(inputs / "a.txt", sentences(60))
    embed(inputs / "*").ok()
    sb.index(str(store), range_bytes=2000, **BUDGETS)
    return store


def resolved(store: Path, inputs: Path, **options: Any) -> Resolved:
    """A run of `embed` with these options over the store's snapshot."""
    asked = EmbedOptions(input=f"{inputs}/*", store=str(store), **options)
    return resolve_run(asked, read_manifest(str(store)), "later", local=True)


@pytest.mark.parametrize("options", [{}, {"index": "auto"}])
def test_embed_keeps_the_request_unless_another_index_is_named(
    indexed: Path, inputs: Path, options: dict[str, Any]
) -> None:
    run = resolved(indexed, inputs, **options)
    assert run.index == REQUEST
    assert run.remembers_index  # so that a missed target does not fail the run
    run = resolved(indexed, inputs, **options, metric="l2")
    assert run.index == IndexRequest(metric="l2", range_bytes=2000, **BUDGETS)  # type: ignore[arg-type]


def test_another_index_has_the_default_target(indexed: Path, inputs: Path) -> None:
    run = resolved(indexed, inputs, index="SQ8", metric="ip")
    assert run.index == IndexRequest("SQ8", "ip")
    assert not run.remembers_index
    assert resolved(indexed, inputs, index="none").index is None


def test_a_store_without_an_index_gets_none_by_a_metric_alone(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(3))
    embed(inputs / "*").ok()
    assert resolved(store, inputs, metric="l2").index is None
    assert resolved(store, inputs, index="auto", metric="l2").index == IndexRequest(metric="l2")


def test_a_run_of_embed_writes_the_request_again(embed: Run, indexed: Path, inputs: Path) -> None:
    write_lines(inputs / "b.txt", sentences(5, 60))
    embed(inputs / "*").ok()
    index = manifest_of(indexed)["index"]
    assert (index["rows"], IndexRequest.from_json(index["request"])) == (65, REQUEST)


@pytest.mark.parametrize("value", [0, -1, "many", 1.5])
def test_the_bytes_of_a_range_are_a_positive_number(store: Path, value: Any) -> None:
    with pytest.raises(sb.OptionError, match="^range_bytes: .* is not a number of bytes above 0$"):
        sb.index(str(store), range_bytes=value)


def test_index_keeps_what_is_not_named_but_that_it_was_to_be_trained(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(60))
    embed(inputs / "*").ok()
    first = run("index", "--store", store, "--index", "IVF4,SQ8", "--metric", "l2", "--retrain")
    assert "again" not in first.ok().out
    kept = IndexRequest("IVF4,SQ8", "l2", 0.4)
    asked: list[tuple[tuple[object, ...], IndexRequest, int]] = [
        (("--target-recall", 0.4), kept, 2),
        (("--retrain",), kept, 3),
        ((), kept, 3),
        (("--index", "Flat"), IndexRequest("Flat"), 4),
    ]
    for flags, request, times in asked:
        out = run("index", "--store", store, *flags).ok().out
        assert ("trained     again: asked for" in out) == (flags == ("--retrain",))
        index = manifest_of(store)["index"]
        assert IndexRequest.from_json(index["request"]) == request
        assert index["trained"]["times"] == times
