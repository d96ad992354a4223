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
from helpers.corpora import check_ledger, sentences, write_lines
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.transforms.store import open_store


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
    before = units_of(store)
    path, n = store / before[0]["path"], len(before)
    whole = path.read_bytes()
    DAMAGE[damage](path)
    out = embed(glob).ok().out
    assert f"damaged     {path.relative_to(store)}: missing or changed" in out
    assert path.read_bytes() == whole
    after = units_of(store, check_ledger(store, 30, embedded=before[0]["rows"]))
    assert [unit["sha256"] for unit in after] == [unit["sha256"] for unit in before]
    found = result_of(store)
    assert found["damaged"] == [before[0]["path"]]
    # by content all rows are read again, and those of the other shard are reused
    checked = n if partition == "file" else 1
    assert (found["checked"]["shards"], found["checked"]["damaged"]) == (checked, 1)
    assert "checked" in json.loads((store / "report.json").read_text())["nights"][-1]
    run("verify", "--store", store).ok()
    said = (
        f"{n} of {n} carried shards are sound: 0 by the checksum of a listing, {n} by reading them"
    )
    assert said in embed(glob).ok().out


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
