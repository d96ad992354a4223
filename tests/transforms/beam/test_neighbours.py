"""Neighbours by list in and list out: those of a search, of groups and blocks of any size, and
after a crash.

Covers transforms/steps/joins/compared_rows.py.
Covers transforms/steps/joins/nearest_rows.py.
Covers transforms/steps/joins/neighbours_result.py.
Covers transforms/steps/joins/work_files.py.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from helpers import eager
from helpers.nights import DIM, Nights, vector_of
from helpers.variants import variants

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.beam.neighbours import Conclude, Neighbours
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.search.opened import SnapshotIndex
from sentence_beam.transforms.steps.joins import compared_rows, nearest_rows
from sentence_beam.transforms.steps.joins.nearest_rows import (
    BlockRecord,
    NeighboursJob,
    query_blocks,
)
from sentence_beam.transforms.steps.joins.neighbours_result import begin
from sentence_beam.transforms.store.records import Problem

pytest.importorskip("faiss")

pytestmark = pytest.mark.usefixtures("plain_beam")

ROWS = {
    f"f{i}": [(f"{i}-{j}", f"{'abcdefgh'[j % 8]} {i} {j}") for j in range(150)] for i in range(4)
}
ASKED = {"q": [(f"q{j}", f"{'abcdefgh'[j % 8]} asked {j}") for j in range(70)]}
TOPICS = "abcdefghijklmnop"
Found = dict[str, list[tuple[str, float]]]


def store(folder: Path, index: str | None, rows: Any = ROWS) -> Nights:
    """A store of rows of eight topics; with an index, most rows in one segment and some in a
    delta.
    """
    nights = Nights(folder)
    if index is None:
        nights.commit_without_index(rows)
    else:
        nights.commit(
            {name: found for name, found in rows.items() if name != "f3"}, IndexRequest(index)
        )
        nights.commit(rows)
    return nights


def job_of(nights: Nights, output: Path, k: int = 7, **values: Any) -> NeighboursJob:
    manifest = nights.manifest
    return NeighboursJob(str(nights.root), manifest.run, manifest.digest, str(output), k, **values)


def table_of(output: Path) -> pa.Table:
    """All rows of the files."""
    return (
        ds.dataset(str(output)).to_table().sort_by([("query", "ascending"), ("rank", "ascending")])
    )


def by_query(output: Path) -> Found:
    found: Found = {}
    for row in table_of(output).to_pylist():
        assert row["rank"] == len(found.setdefault(row["query"], [])) + 1
        found[row["query"]].append((row["id"], row["score"]))
    return found


def searched(nights: Nights, queries: list[tuple[str, str]], k: int) -> Found:
    """What `search` finds for the same queries."""
    searcher = Searcher(nights.manifest)
    rows = searcher.rows.describe(
        searcher.nearest(np.array([vector_of(text, DIM) for _, text in queries]), k)
    )
    return {
        name: [(hit["id"], hit["score"]) for hit in hits]
        for (name, _), hits in zip(queries, rows, strict=True)
    }


def check_same(found: Found, wanted: Found) -> None:
    assert found.keys() == wanted.keys()
    for name, hits in wanted.items():
        assert [i for i, _ in found[name]] == [i for i, _ in hits]
        np.testing.assert_allclose([s for _, s in found[name]], [s for _, s in hits], atol=1e-5)


@pytest.mark.parametrize(
    "index",
    [
        None,
        "IVF8,SQ8",
        *(pytest.param(index, marks=pytest.mark.slow) for index in ("Flat", "IVF8,RaBitQ")),
    ],
)
def test_they_are_those_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str | None
) -> None:
    monkeypatch.setattr(compared_rows, "GROUP_ROWS", 300)
    monkeypatch.setattr(nearest_rows, "BLOCK_ROWS", 32)
    nights, others = store(tmp_path / "s", index), store(tmp_path / "o", None, ASKED)
    records = eager.run(Neighbours(job_of(nights, tmp_path / "out")), query_blocks(others.manifest))
    assert sorted((record.queries, record.rows) for record in records) == [
        (6, 42),
        (32, 224),
        (32, 224),
    ]
    check_same(by_query(tmp_path / "out"), searched(nights, ASKED["q"], 7))
    assert not list((tmp_path / "out" / "_work").glob("[!.]*"))


def of_topics(folder: Path, rows: int) -> Nights:
    """A store of so many rows, whose index is cut into ranges."""
    nights = Nights(folder)
    files = {
        f"f{i}": [(f"{i}-{j}", f"{TOPICS[j % 16]} {i} {j}") for j in range(100)]
        for i in range(rows // 100)
    }
    request = IndexRequest("IVF32,SQ8", target_recall=0.3, range_bytes=1500)
    nights.commit(files, request)  # few lists a query
    return nights


def test_queries_are_read_only_for_groups_that_they_look_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the rows are twice the blocks and twice the groups: four times as many pairs."""
    monkeypatch.setattr(nearest_rows, "BLOCK_ROWS", 100)
    read = storage.read_bytes
    queries: list[int] = []

    def counted(path: str) -> bytes:
        data = read(path)
        if path.endswith("-queries.npz"):
            queries.append(len(np.load(io.BytesIO(data))["which"]))
        return data

    monkeypatch.setattr(storage, "read_bytes", counted)
    sums = []
    tables = []
    stores = {rows: of_topics(tmp_path / f"{rows}", rows) for rows in (400, 800)}
    for rows, size in ((400, 800), (400, 1), (800, 1)):  # rows of a group: all, or a range
        nights = stores[rows]
        monkeypatch.setattr(compared_rows, "GROUP_ROWS", size)
        queries.clear()
        output = tmp_path / f"out-{rows}-{size}"
        job = job_of(nights, output, 3, itself=True)
        eager.run(Neighbours(job), query_blocks(nights.manifest))
        tables.append(table_of(output))
        sums.append(sum(queries))
    assert tables[0].equals(tables[1])
    assert sums[0] == 0  # the block's own file has all queries
    assert 0 < sums[2] < 2.5 * sums[1]


@pytest.mark.parametrize("k", [3, pytest.param(600, marks=pytest.mark.slow)])
def test_more_lists_are_looked_into_where_these_hold_too_few(tmp_path: Path, k: int) -> None:
    few = {"f0": [(f"{j}", f"{'abcdefgh'[j % 8]} {j}") for j in range(60)], "f3": [("x", "a x")]}
    nights, others = store(tmp_path / "s", "IVF30,SQ8", few), store(tmp_path / "o", None, ASKED)
    eager.run(Neighbours(job_of(nights, tmp_path / "out", k)), query_blocks(others.manifest))
    check_same(by_query(tmp_path / "out"), searched(nights, ASKED["q"], k))


def test_no_row_is_found_for_itself_and_none_below_the_least_score(tmp_path: Path) -> None:
    nights = store(tmp_path / "s", "IVF8,SQ8", {"f0": [*ROWS["f0"], ("copy", ROWS["f0"][0][1])]})
    job = job_of(nights, tmp_path / "out", 4, itself=True, min_score=0.8)
    eager.run(Neighbours(job), query_blocks(nights.manifest))
    found = by_query(tmp_path / "out")
    assert found["0-0"][0] == ("copy", pytest.approx(1, abs=0.01))
    assert found["copy"][0] == ("0-0", pytest.approx(1, abs=0.01))
    everything = searched(nights, ROWS["f0"], 5)
    for name, hits in everything.items():
        assert [i for i, _ in found.get(name, [])] == [
            i for i, s in hits if i != name and s >= 0.8
        ][:4]


def test_what_is_finished_is_not_made_again_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_rows, "BLOCK_ROWS", 16)
    nights, others = store(tmp_path / "s", "IVF8,SQ8"), store(tmp_path / "o", None, ASKED)
    blocks = query_blocks(others.manifest)
    eager.run(Neighbours(job_of(nights, tmp_path / "whole")), blocks)
    finish, finished = nearest_rows.NeighbourSearch.finish, list[str]()

    def dying(self: Any, work: nearest_rows.Comparison) -> Any:
        if len(finished) == 2:
            raise RuntimeError("the power is gone")
        finished.append(work.block)
        return finish(self, work)

    monkeypatch.setattr(nearest_rows.NeighbourSearch, "finish", dying)
    job = job_of(nights, tmp_path / "out")
    with pytest.raises(RuntimeError, match="the power is gone"):
        eager.run(Neighbours(job), blocks)
    stood = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert len(stood) == 2
    monkeypatch.setattr(nearest_rows.NeighbourSearch, "finish", finish)
    read = SnapshotIndex.located
    counted: list[int] = []
    monkeypatch.setattr(
        SnapshotIndex, "located", lambda self, *where: counted.append(1) or read(self, *where)
    )
    records = eager.run(Neighbours(job), blocks)
    assert len(counted) == len(blocks) - 2
    assert sum(record.queries for record in records) == len(ASKED["q"])
    for path in (tmp_path / "whole").glob("*.parquet"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert (
        stood.items()
        <= {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}.items()
    )


@variants("left", [b"", b"PAR1", b"cut"], (2,))
def test_a_damaged_file_of_a_block_is_made_again(tmp_path: Path, left: bytes) -> None:
    nights, others = store(tmp_path / "s", "IVF8,SQ8"), store(tmp_path / "o", None, ASKED)
    job, blocks = job_of(nights, tmp_path / "out"), query_blocks(others.manifest)
    eager.run(Neighbours(job), blocks)
    (path,) = (tmp_path / "out").glob("*.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if left == b"cut" else left)
    (record,) = eager.run(Neighbours(job), blocks)
    assert (record.queries, record.rows) == (70, 490)
    assert path.read_bytes() == whole


def test_what_a_killed_run_left_of_its_work_is_written_over(tmp_path: Path) -> None:
    nights, others = store(tmp_path / "s", "IVF8,SQ8"), store(tmp_path / "o", None, ASKED)
    for name in ("whole", "out"):
        work = tmp_path / name / "_work"
        work.mkdir(parents=True)
        if name == "out":
            (work / "000000.npz").write_bytes(b"cut")
        eager.run(Neighbours(job_of(nights, tmp_path / name)), query_blocks(others.manifest))
    assert by_query(tmp_path / "out") == by_query(tmp_path / "whole")


def test_a_file_of_the_work_that_is_damaged_meanwhile_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights, others = store(tmp_path / "s", "IVF8,SQ8"), store(tmp_path / "o", None, ASKED)
    write = nearest_rows.write_arrays
    monkeypatch.setattr(
        nearest_rows,
        "write_arrays",
        lambda path, **arrays: (write(path, **arrays), cut(Path(path))),
    )
    problems = eager.run(
        Neighbours(job_of(nights, tmp_path / "out")), query_blocks(others.manifest)
    )
    assert problems
    assert all("000000.npz is not what the job wrote" in problem.message for problem in problems)


def cut(path: Path) -> None:
    """Leave the first half of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_a_folder_with_nothing_but_a_lock_is_free(tmp_path: Path) -> None:
    (tmp_path / "._neighbours.json.lock").touch()
    (tmp_path / f"_neighbours.json.tmp-{'0' * 32}").touch()
    begin(str(tmp_path), {"k": 3})
    begin(str(tmp_path), {"k": 3})
    (tmp_path / "_neighbours.json").write_bytes(b"[" * 100_000)
    with pytest.raises(OptionError, match="neighbours of another job"):
        begin(str(tmp_path), {"k": 3})


def test_a_damaged_index_is_a_problem_and_no_file(tmp_path: Path) -> None:
    nights, others = store(tmp_path / "s", "IVF8,SQ8"), store(tmp_path / "o", None, ASKED)
    segment = tmp_path / "s" / nights.index["segments"][0]["path"]
    segment.write_bytes(segment.read_bytes()[:-100])
    (problem,) = eager.run(
        Neighbours(job_of(nights, tmp_path / "out")), query_blocks(others.manifest)
    )
    assert isinstance(problem, Problem)
    assert segment.name in problem.message
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_how_a_job_ended_stands_beside_its_files(tmp_path: Path) -> None:
    begin(str(tmp_path), {"k": 3})
    records = [BlockRecord(f"{tmp_path}/neighbours-{n}.parquet", 10, 30, n) for n in (2, 1)]
    (said,) = eager.run(Conclude(str(tmp_path), "run1"), records)
    assert (said["exit_code"], said["queries"], said["rows"], said["rejected"]) == (0, 20, 60, 3)
    assert [file["path"] for file in said["files"]] == [
        "neighbours-1.parquet",
        "neighbours-2.parquet",
    ]
    (said,) = eager.run(
        Conclude(str(tmp_path), "run2"), [*records, Problem("a file is damaged", 1)]
    )
    assert (said["exit_code"], said["message"]) == (1, "a file is damaged")
