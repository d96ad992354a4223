"""The same rows, shards and counts however a runner cuts, repeats and spreads the work."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    manifest_of,
    sentences,
    vectors_of,
    write_lines,
    write_parquet,
)
from helpers.snapshots import units_of
from helpers.variants import variants


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(cached_beam_options: None) -> None:
    """Beam's own runner: it is part of what is tested."""


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Text and Parquet, several units each, with copies of texts and ids and a rejected row."""
    texts = sentences(60)
    ids = [f"id{i % 50}" for i in range(60)]
    write_parquet(inputs / "a.parquet", texts, row_group_size=10, name=ids)
    write_parquet(inputs / "b.parquet", [*texts[:20], texts[0], ""], name=[*ids[:21], "x"])
    return inputs / "*"


OPTIONS = ("--unit-tokens", 100, "--id-column", "name", "--max-rejects", 0.1, "--index", "auto")


def the_same(store: Path) -> dict[str, Any]:
    """What must not depend on the runner."""
    manifest = manifest_of(store)
    assert manifest is not None
    kept = {name: manifest[name] for name in ("space", "rows", "work", "tokens", "index")}
    return {**kept, "units": units_of(store)}


MULTI = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
FLAGS = {
    "every bundle twice": ("--direct_runner_bundle_repeat=1",),
    "threads": ("--direct_num_workers=3", "--direct_running_mode=multi_threading"),
    "DirectRunner": ("--runner=DirectRunner",),
    "processes": MULTI,
}


@variants("flags", FLAGS.values(), kept=(0,), ids=list(FLAGS))
@variants("partition", ["file", "content"], kept=(1,))
def test_shards_and_counts_are_those_of_one_plain_process(
    run: Run,
    embed: Run,
    glob: Path,
    store: Path,
    model: Path,
    flags: tuple[str, ...],
    partition: str,
) -> None:
    plain = embed(glob, *OPTIONS).ok()
    other, options = store.with_name("other"), (*OPTIONS, "--partition", partition)
    outcome = run("embed", "--input", glob, "--store", other, "--model", model, *options, *flags)
    assert outcome.status == 0
    # whose workers log what they please
    assert outcome.err == "" or flags == MULTI
    check_ledger(other, 81, 1)
    assert the_same(other) == the_same(store)
    ids = next(line for line in plain.out.splitlines() if line.startswith("ids "))
    assert ids in outcome.out


@pytest.mark.parametrize("bound", [2e-5, 0.0])
def test_vectors_do_not_depend_on_the_neighbours_in_a_unit(
    run: Run, embed: Run, inputs: Path, store: Path, model: Path, bound: float
) -> None:
    path = write_lines(inputs / "a.txt", sentences(50))
    options = ("--dtype", "float32") if bound else ("--deterministic",)
    embed(path, *options).ok()
    other = store.with_name("other")
    batches = ("--tokens-per-batch", 64)
    cut = ("--unit-tokens", 30, *(batches if bound else ()))
    run("embed", "--input", path, "--store", other, "--model", model, *options, *cut).ok()
    one, two = vectors_of(store), vectors_of(other)
    assert one.keys() == two.keys()
    largest = np.abs(list(one.values())).max()
    assert max(np.abs(np.subtract(one[i], two[i])).max() for i in one) <= bound * largest
    if not bound:  # which the store remembers
        embed(path, *batches).failed(2, "--tokens-per-batch", "deterministic")
        embed(path, "--no-deterministic", *batches).ok()


def test_a_failure_under_repeated_bundles_is_still_one_line(
    embed: Run, inputs: Path, store: Path
) -> None:
    path = write_lines(inputs / "a.txt.gz", sentences(50))
    path.write_bytes(path.read_bytes()[:-9])
    embed(inputs / "*", "--direct_runner_bundle_repeat=1").failed(1, path, "cut short")
    assert manifest_of(store) is None
