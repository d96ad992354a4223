"""Shards that a run carries over: damaged ones are found by the run itself, named, and made
again.

Covers transforms/steps/commit/verify_job.py.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, manifest_of, sentences, write_lines
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs import carried_check


def flip(path: Path) -> None:
    """Change one bit in the middle of a file, which keeps its size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {"changed": flip, "missing": Path.unlink}


def result_of(store: Path) -> dict[str, Any]:
    """How the last committed run ended."""
    return json.loads(
        (store / "runs" / open_store(str(store)).manifest.run / "result.json").read_bytes()
    )


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Three files of ten rows each."""
    for place, name in enumerate("abc"):
        write_lines(inputs / f"{name}.txt", sentences(10, 10 * place))
    return inputs / "*"


@variants("damage", DAMAGE, kept=(0,))
@variants("partition", ["file", "content"], kept=(0,))
@pytest.mark.usefixtures("every_shard_checked")
def test_a_damaged_shard_of_an_unchanged_file_is_made_again(
    run: Run, embed: Run, glob: Path, store: Path, partition: str, damage: str
) -> None:
    embed(glob, "--unit-tokens", 200).ok()
    before = manifest_of(store)
    assert before is not None
    path = store / units_of(store, before)[0]["path"]
    whole = path.read_bytes()
    DAMAGE[damage](path)
    out = embed(glob).ok().out
    assert f"damaged     {path.relative_to(store)}: missing or changed" in out
    assert path.read_bytes() == whole
    after = check_ledger(store, 30, embedded=units_of(store, before)[0]["rows"])
    assert [unit["sha256"] for unit in units_of(store, after)] == [
        unit["sha256"] for unit in units_of(store, before)
    ]
    found = result_of(store)
    assert found["damaged"] == [units_of(store, before)[0]["path"]]
    assert (found["checked"]["shards"], found["checked"]["damaged"]) == (
        len(units_of(store, before)),
        1,
    )
    assert "checked" in json.loads((store / "report.json").read_text())["nights"][-1]
    run("verify", "--store", store).ok()
    out = embed(glob).ok().out
    n = len(units_of(store, before))
    assert (
        f"{n} of {n} carried shards are sound: 0 by the checksum of a listing, {n} by reading them"
        in out
    )


def test_every_shard_is_read_in_as_many_runs_as_the_share_says(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried_check, "CHECKED", 0.25)
    for place in range(12):
        write_lines(inputs / f"{place}.txt", sentences(1, place))
    embed(inputs / "*").ok()
    read = 0
    for _ in range(4):
        embed(inputs / "*").ok()
        assert result_of(store)["checked"]["read"] > 0
        read += result_of(store)["checked"]["read"]
    assert read >= 12


def test_of_few_shards_another_one_is_read_in_each_run(
    embed: Run, inputs: Path, store: Path
) -> None:
    for place in range(4):
        write_lines(inputs / f"{place}.txt", sentences(1, place))
    embed(inputs / "*").ok()
    places = set()
    for _ in range(4):
        embed(inputs / "*").ok()
        assert result_of(store)["checked"]["read"] == 1
        places.add(manifest_of(store)["check_from"])
    assert len(places) == 4


@pytest.mark.usefixtures("every_shard_checked")
def test_of_a_file_that_is_not_named_a_damaged_shard_ends_the_run(
    embed: Run, glob: Path, store: Path
) -> None:
    embed(glob).ok()
    before = (store / "manifest.json").read_bytes()
    for unit in units_of(store):
        if unit["file"] == "a.txt":
            flip(store / unit["path"])
    again = write_lines(glob.parent / "d.txt", sentences(3, 50))
    embed(again, "--append").failed(1, "was changed", glob.parent / "a.txt", "--input")
    assert (store / "manifest.json").read_bytes() == before
    embed([again, glob.parent / "a.txt"], "--append").ok()
    check_ledger(store, 33)
