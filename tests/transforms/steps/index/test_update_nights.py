"""Indexes that are brought up to date answer with the rows of the last night and no others."""

from pathlib import Path

import numpy as np
import pytest
from helpers.nights import Files, Nights, nearest

from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.steps.index import held_out
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.verification import faults

pytest.importorskip("faiss")

TOPICS = "abcd"


def collection(night: int = 0) -> Files:
    """Rows of four topics in two files; of a later night a part of the second has other texts."""
    files: dict[str, list[tuple[str, str]]] = {"f0": [], "f1": []}
    for name, rows in files.items():
        for row in range(60):
            edited = f" {night}" if name == "f1" and row < 12 else ""
            rows.append((f"{name}-{row}", f"{TOPICS[row % 4]} {name} {row}{edited}"))
    return files


def check_found(nights: Nights, files: Files) -> None:
    """Check that a search of all lists finds every row, nearest first, with its score."""
    ids = sorted(name for rows in files.values() for name, _ in rows)
    text = "a question"
    (found,) = nights.search([text], len(ids) + 5, nprobe=64)
    assert sorted(name for _, name in found) == ids
    scores = [score for score, _ in found]
    np.testing.assert_allclose(scores, nearest(files, text, len(ids)), atol=3e-4)
    assert list(faults(nights.manifest)) == []


def kinds(nights: Nights) -> list[str]:
    return [segment["kind"] for segment in nights.index["segments"]]


@pytest.mark.parametrize("factory", ["IVF4,Flat", "Flat"])
def test_edited_deleted_and_rewritten_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str
) -> None:
    monkeypatch.setattr(held_out, "HELD_OUT", 20)
    monkeypatch.setattr(upkeep, "MOST_WORN", 0.3)
    nights = Nights(tmp_path / "store")
    nights.commit(collection(), IndexRequest(factory))
    for night in (1, 2):
        files = collection(night)
        nights.commit(files)
        assert nights.index["change"]["what"] != "trained"
        check_found(nights, files)
    files = {"f0": collection()["f0"][::2], "f1": collection(2)["f1"]}
    nights.commit(files)
    check_found(nights, files)
    assert nights.index["recall"]["value"] == 1.0
    nights.commit(files, retrain="asked for")
    assert sum(kind != "held-out" for kind in kinds(nights)) == 1
    check_found(nights, files)


@pytest.mark.parametrize(("most", "what"), [(0.3, "followed"), (0.0, "rewritten")])
def test_vectors_that_candidates_are_scored_by_again_follow_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: float, what: str
) -> None:
    monkeypatch.setattr(upkeep, "MOST_WORN", most)
    nights = Nights(tmp_path / "store")
    nights.commit(collection(), IndexRequest("IVF4,RaBitQ"))
    files = collection(1)
    nights.commit(files)
    assert nights.index["change"]["what"] == what
    check_found(nights, files)
    assert all(segment["refine"] for segment in nights.index["segments"])
