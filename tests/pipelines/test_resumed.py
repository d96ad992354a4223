"""A run that goes on from what another left: it says so, and its rates are of its own work."""

import json
import re
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, sentences, write_parquet
from helpers.snapshots import units_of

from sentence_beam.transforms.report.run_history import read_summaries
from sentence_beam.transforms.store.runs.run_result import read_result
from sentence_beam.transforms.store.shards.unit_store import UnitStore


@pytest.fixture
def broken(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, int]:
    """A run over ten units that failed while it wrote the seventh; its id, and how many it
    finished.
    """
    write_parquet(inputs / "a.parquet", sentences(100), row_group_size=10)
    write, written = UnitStore.write, []

    def failing(self: UnitStore, *args: object) -> object:
        if len(written) == 6:
            raise RuntimeError("the power went")
        written.append(0)
        return write(self, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(UnitStore, "write", failing)
        assert embed(inputs / "*", "--unit-tokens", 60).status == 1
    (run_id,) = (path.name for path in (store / "runs").iterdir())
    return run_id, len(written)


def test_it_says_what_was_finished_and_by_whom(
    embed: Run, inputs: Path, store: Path, broken: tuple[str, int]
) -> None:
    run_id, finished = broken
    out = embed(inputs / "*", "--unit-tokens", 60).ok().out
    manifest = check_ledger(store, 100, embedded=100)
    units = len(units_of(store, manifest))
    assert f"resumed     {finished} of {units} units were finished by run {run_id}" in out
    result = read_result(str(store), manifest["run"])
    assert result is not None
    theirs = [json.loads(path.read_text()) for path in (store / "sidecars").iterdir()]
    own = sum(unit["rows"] for unit in theirs if unit["run"] == manifest["run"])
    assert 0 < own < 100
    assert (result.own_rows, result.resumed, result.made) == (own, {run_id: finished}, units)
    assert result.tokens == sum(unit["real"] for unit in theirs if unit["run"] == manifest["run"])
    rate = float(re.search(r"([\d,]+) rows/s", out)[1].replace(",", ""))  # type: ignore[index]
    assert rate == pytest.approx(own / result.seconds, abs=0.6)
    assert [summary.status for summary in read_summaries(str(store))] == ["failed", "committed"]


@pytest.mark.usefixtures("broken")
def test_a_run_that_goes_on_from_a_snapshot_says_nothing_of_it(
    embed: Run, inputs: Path, store: Path
) -> None:
    embed(inputs / "*", "--unit-tokens", 60).ok()
    (inputs / "a.parquet").touch()
    assert "resumed" not in embed(inputs / "*").ok().out
    path = inputs / "a.parquet"
    write_parquet(path, [*sentences(90), *sentences(10, 500)], row_group_size=10)
    out = embed(inputs / "*").ok().out
    assert "resumed" not in out
    check_ledger(store, 100, embedded=10)
