"""An index chosen by budgets: the kind built, what the manifest says of it, and what is said where
none serves.

Covers transforms/steps/index/kind_choice.py.
"""

from pathlib import Path

import pytest
from helpers.nights import Nights, run_steps

from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index import budgets, index_kinds
from sentence_beam.transforms.store.records import Problem

pytest.importorskip("faiss")

pytestmark = pytest.mark.usefixtures("plain_beam")

FILES = {
    f"f{file}": [(f"{file}-{row}", f"{'abcd'[row % 4]} {file} {row}") for row in range(100)]
    for file in range(4)
}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


def problem_of(nights: Nights, request: IndexRequest) -> Problem:
    run, units = nights.begin(FILES)
    found = run_steps(run, units, request)
    assert found.problem is not None
    return found.problem


def test_the_kind_within_the_bytes_is_built_and_the_manifest_says_why(
    nights: Nights, tmp_path: Path
) -> None:
    request = IndexRequest(target_recall=0.7, max_bytes_per_row=20)
    index = nights.commit(FILES, request)
    assert [tried["factory"] for tried in index["choice"]["tried"]] == ["SQ8", "SQ6", "SQ4"]
    assert index["factory"] == "SQ8"
    assert index["choice"]["row_bytes"] == 16
    assert index["choice"]["why"].startswith(
        "of 3 kinds for recall 0.7 within 20 bytes a row, the one that finds most"
    )
    assert Nights(tmp_path / "again").commit(FILES, request)["choice"] == index["choice"]
    assert len(nights.search(["a question"], 999)[0]) == 400
    more = {**FILES, "new": [("n", "b new")]}
    assert nights.commit(more, request)["change"]["what"] == "followed"
    assert nights.index["choice"] == index["choice"]
    assert nights.commit(more, IndexRequest())["choice"] == {
        "why": "auto, for 401 rows", "row_bytes": 64, "query_bytes": 401 * 64, "tried": [],
    }  # fmt: skip


def test_few_rows_are_compared_by_their_vectors_if_the_time_allows_it(nights: Nights) -> None:
    index = nights.commit(FILES, IndexRequest(max_latency_ms=2))
    assert (index["factory"], index["recall"]["value"]) == ("Flat", 1.0)
    assert index["choice"]["why"] == "exact, for recall 0.95 within 2 ms (4,000,000 bytes) a query"
    assert nights.commit(FILES, IndexRequest(max_latency_ms=0.01))["factory"] == "SQbf16"


def test_kinds_with_lists_are_compared_and_those_with_candidates_have_their_vectors(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (budgets, index_kinds):
        monkeypatch.setattr(module, "FLAT_BELOW", 100)
    index = nights.commit(FILES, IndexRequest(max_bytes_per_row=18, target_recall=0.6))
    found = {tried["factory"]: tried for tried in index["choice"]["tried"]}
    assert list(found) == ["IVF10,SQ4", "IVF10,RaBitQ"]
    assert index["factory"] in found
    least = IndexRequest("IVF10,RaBitQ", max_latency_ms=0.02, target_recall=0.3)
    index = nights.commit(FILES, least)
    assert (index["factory"], index["rerank"] >= 50) == ("IVF10,RaBitQ", True)
    assert all(segment["refine"] for segment in index["segments"])
    assert index["choice"]["query_bytes"] <= 0.02 * budgets.BYTES_PER_MS
    assert len(nights.search(["a question"], 999)[0]) == 400


def test_a_target_that_no_kind_reaches_fails_with_what_was_reached(nights: Nights) -> None:
    found = problem_of(nights, IndexRequest(target_recall=1.0, max_bytes_per_row=8))
    assert str(found.error()).startswith(
        "target_recall 1: no index reaches recall 1 within 8 bytes a row; the best, SQ4 (8 bytes a row, "
    )
    assert "of the 10 nearest" in found.message
    assert found.error().exit_code == 3
    found = problem_of(nights, IndexRequest("SQ4", target_recall=1.0))
    assert str(found.error()).startswith("target_recall 1: SQ4 reaches recall@10 0.")
    assert found.error().exit_code == 3
    assert problem_of(nights, IndexRequest(max_bytes_per_row=7)).error().exit_code == 2


def test_without_a_target_of_its_own_or_remembered_the_best_is_built(nights: Nights) -> None:
    assert nights.commit(FILES, IndexRequest("SQ4"))["request"]["target_recall"] is None
    request = IndexRequest(max_bytes_per_row=8, max_latency_ms=0.0001)
    index = nights.commit(FILES, request)
    assert index["factory"] == "SQ4"
    assert "none reaching" in index["choice"]["why"]
