"""Facts about a store: of whole ones, of ones whose last run failed or still works, and of damaged
ones.
"""

import json
import os
from pathlib import Path

import pytest
from helpers.settled import finish
from helpers.snapshots import begin, night, numbered, run_name, write_unit

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of two nights: of ten rows the second changes one, deletes one and adds two."""
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 10))
    night(root, 1, {**numbered(0, 4), "r0": "another"}, numbered(5, 12))
    return root


def test_what_a_store_is(root: str) -> None:
    store = open_store(root)
    found = store.info()
    assert json.loads(json.dumps(found)) == found
    assert (found["store"], found["snapshot"], found["snapshots"], found["format"]) == (
        root,
        run_name(1),
        2,
        1,
    )
    assert found["model"] == "m"
    assert (found["space"]["id"], found["space"]["dim"]) == (store.space.id, 4)
    assert found["rows"] == {"read": 11, "written": 11, "rejected": 0}
    assert found["shards"] == len(store.manifest.shard_paths) == 2
    assert found["bytes"]["shards"] == sum(
        os.path.getsize(path) for path in store.manifest.shard_paths
    )
    assert (found["index"], found["bytes"]["index"], found["tables"], found["faults"]) == (
        None,
        0,
        {},
        [],
    )
    columns = {column["name"]: column["type"] for column in found["columns"]}
    assert (
        columns.items()
        >= {
            "id": "string",
            "norm": "float",
            "embedding": "fixed_size_list<element: float>[4]",
        }.items()
    )
    assert found["options"] == store.manifest.options.to_json()
    last = found["last_run"]
    assert (last["run"], last["status"], last["message"]) == (run_name(1), "committed", "committed")
    assert last["rows"] == {"read": 11, "written": 11, "rejected": 0}
    earlier = open_store(root, "-1").info()
    assert (earlier["snapshot"], earlier["rows"]["written"]) == (run_name(0), 10)
    assert earlier["last_run"]["run"] == run_name(1)


def test_a_last_run_that_failed(root: str) -> None:
    run = begin(root, 2, 1)
    finish(run, [write_unit(root, 0, [("a", "x")], run.id)], [Problem("no room is left", 1)])
    found = open_store(root).info()
    assert found["snapshot"] == run_name(1)
    assert found["last_run"]["run"] == run_name(2)
    assert (found["last_run"]["status"], found["last_run"]["message"]) == (
        "failed",
        "no room is left",
    )
    assert found["faults"] == []


def test_a_last_run_without_an_end_is_at_work_or_unfinished(root: str) -> None:
    run = begin(root, 2, 1)
    assert open_store(root).info()["last_run"] == {
        "run": run.id, "status": "unfinished", "started": "2026-01-01T00:00:02.000Z",
    }  # fmt: skip
    lease.acquire(root, lease.Lease.from_this_process(run.id, "FnApiRunner", "", True))
    assert open_store(root).info()["last_run"]["status"] == "running"


def test_damaged_files_are_named_beside_what_is_known(root: str) -> None:
    store = open_store(root)
    Path(store.manifest.shard_paths[0]).write_bytes(b"PAR1")
    result = Path(root, "runs", run_name(1), "result.json")
    result.write_text("{")
    found = store.info()
    assert found["rows"]["written"] == 11
    assert found["columns"] is None
    assert (found["last_run"]["run"], found["last_run"]["status"]) == (run_name(1), "committed")
    shard, of_result = found["faults"]
    assert store.manifest.shard_paths[0] in shard
    assert str(result) in of_result
    Path(store.manifest.shard_paths[0]).unlink()
    result.unlink()
    found = store.info()
    assert len(found["faults"]) == 1
    assert found["last_run"]["message"] == "committed; its result is missing"


def test_a_damaged_manifest_is_named(root: str) -> None:
    Path(root, "manifest.json").write_text("[]")
    with pytest.raises(SentenceBeamError, match="manifest.json"):
        open_store(root)


def test_a_store_without_a_row_has_no_columns_to_show(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0)
    found = open_store(root).info()
    assert (found["rows"]["written"], found["shards"], found["columns"], found["faults"]) == (
        0,
        0,
        None,
        [],
    )
