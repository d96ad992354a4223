"""The end of an erasure: what is removed, that it can be done again, and who may do it.

Covers transforms/steps/forget/erasure.py.
Covers transforms/steps/forget/erasure_record.py.
Covers transforms/steps/forget/receipt.py.
"""

import json
from pathlib import Path

import pytest
from helpers.commands import Run, runner
from helpers.erasing import read
from helpers.snapshots import night, numbered, run_name

from sentence_beam.transforms.steps.forget.erasure_end import finish_erasure
from sentence_beam.transforms.steps.forget.receipt import read_receipt
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import snapshots
from sentence_beam.transforms.store.runs.run_result import Result, record_result


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""
    return runner(capfd)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with two snapshots and what interrupted and failed runs left."""
    root = tmp_path / "store"
    night(str(root), 0, numbered(0, 5), numbered(5, 9), id_column="id")
    night(str(root), 1, numbered(0, 5), numbered(5, 12), id_column="id")
    for path in ("runs/{}/begun-x", "runs/mine/units/u.arrow", "runs/{}/index/update-x"):
        whole = root / path.format(run_name(7))
        whole.parent.mkdir(parents=True)
        whole.write_bytes(b"r3")
    for number, message in ((8, "no vector of row 'r3'."), (9, "12 of r33 rows"), (6, "no room")):
        result = Result(run_name(number), "failed", 1, message, "2026-01-01T00:00:00.000Z", 1.0)
        record_result(str(root), result)
    return root


def names(root: Path, folder: str) -> list[str]:
    """The files below a folder of a store, without locks."""
    return sorted(
        str(path.relative_to(root))
        for path in (root / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def test_only_what_the_new_snapshot_names_and_the_history_stay(run: Run, root: Path) -> None:
    out = run("forget", "--store", root, "--id", "r3", "--reason", "a request", "--json").ok().out
    receipt = json.loads(out)
    current = receipt["run"]
    assert snapshots(str(root)) == [current]
    assert receipt["snapshots"] == [run_name(1), run_name(0)]
    assert (receipt["rows"], receipt["units"], receipt["reason"]) == (1, 1, "a request")
    assert receipt["check"] == ["no file has any of the erased rows"]
    assert receipt["removed"]["snapshots"] == 2
    results = [run_name(0), run_name(1), run_name(6), run_name(9)]
    assert names(root, "runs") == sorted(
        [layout.plan(current), *map(layout.result, [current, *results])]
    )
    assert len(names(root, "embeddings")) == 2
    assert "row 'r3'" not in (root / "report.json").read_text()
    assert run_name(9) in (root / "report.json").read_text()
    kept = read_receipt(str(root), current)
    assert {name: receipt[name] for name in ("ids", "fitted", "results", "list")} == {
        name: kept[name] for name in ("ids", "fitted", "results", "list")
    }


def test_it_ends_once_and_may_be_done_again(run: Run, root: Path) -> None:
    run("forget", "--store", root, "--id", "r3").ok()
    assert finish_erasure(read(root)) is None
    current = read(root)
    receipt = read_receipt(str(root), current.run)
    path = root / layout.erasure(current.run)
    record = {
        **{name: receipt[name] for name in ("run", "started", "reason", "rows", "queries")},
        **{name: receipt[name] for name in ("ids", "snapshots", "fitted", "removed")},
        "units": [],
        "results": [],
    }
    from sentence_beam.transforms.store.sealed_json import sealed, to_bytes

    path.write_bytes(to_bytes(sealed(record)))
    assert finish_erasure(read(root)) == current.run
    again = read_receipt(str(root), current.run)
    assert again["removed"] == receipt["removed"], "what the first attempt removed"
    assert not path.exists()


def test_a_record_without_a_commit_is_no_erasure(root: Path) -> None:
    path = root / layout.erasure(run_name(7))
    path.write_text("{}")
    before = names(root, "")
    assert finish_erasure(read(root)) is None
    assert names(root, "") == before
