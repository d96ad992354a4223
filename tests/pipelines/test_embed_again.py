"""A second run over a store: what was there already is not counted as work, and nothing is lost by
a trial.
"""

import json
from pathlib import Path

from helpers.commands import Run
from helpers.corpora import sentences, write_lines


def manifest(store: Path) -> dict:
    """The current manifest."""
    return json.loads((store / "manifest.json").read_text())


def test_units_that_are_as_they_were_count_as_reused(embed: Run, inputs: Path, store: Path) -> None:
    rows = sentences(200)
    write_lines(inputs / "a.txt", rows)
    embed(inputs / "*", "--unit-tokens", 300).ok()
    write_lines(inputs / "a.txt", [*rows, "one more dog"])
    embed(inputs / "*").ok()
    work = manifest(store)["work"]
    assert work["carried"] == 0
    assert work["reused"] > 150
    assert 0 < work["embedded"] + work["duplicates"] < 50
    assert sum(work.values()) == 201


def test_a_trial_does_not_shrink_a_store(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(30))
    embed(inputs / "*").ok()
    before = (store / "manifest.json").read_bytes()
    embed(inputs / "*", "--limit", 5).failed(2, "--limit 5", "30 rows")
    assert (store / "manifest.json").read_bytes() == before


def test_reembed_keeps_the_dtype_and_takes_nothing_over_unread(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(30))
    embed(inputs / "*", "--dtype", "float32").ok()
    embed(inputs / "*", "--reembed").ok()
    found = manifest(store)
    assert found["space"]["dtype"] == "float32"
    assert found["work"]["carried"] == 0


def test_index_files_that_are_gone_are_made_again(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(60))
    embed(inputs / "*", "--index", "auto").ok()
    for path in (store / "index").iterdir():
        path.unlink()
    assert run("verify", "--store", store).status == 1
    embed(inputs / "*").ok()
    run("verify", "--store", store).ok()
