"""Files that only have another name: carried where ids come from a column, else read, with nothing
embedded again. And the cuts of files, which a store keeps.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import (
    check_ledger,
    files_in,
    sentences,
    vectors_of,
    write_jsonl,
    write_parquet,
)
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.steps.embed import load_encoder
from sentence_beam.transforms.store import open_store


@pytest.fixture
def night(embed: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`embed` of all inputs with ids from a column; the model is there in the first night only."""
    calls: list[bool] = []

    def call(*options: object) -> Outcome:
        if calls:
            forbid_model(monkeypatch)
        calls.append(True)
        return embed(inputs / "**", "--id-column", "id", "--unit-tokens", 60, *options).ok()

    return call


def forbid_model(patch: pytest.MonkeyPatch) -> None:
    """From its call on, loading a model fails the test."""
    patch.setattr(load_encoder, "load_encoder", lambda job: pytest.fail("the model was loaded"))


def put(path: Path, start: int, stop: int) -> Path:
    """Rows k<start> to k<stop>, in row groups of five."""
    ids = [f"k{i}" for i in range(start, stop)]
    return write_parquet(path, sentences(stop - start, start), 5, id=ids)


def test_a_renamed_file_is_carried_with_its_cut_and_stays_so(
    night: Callable[..., Outcome], inputs: Path, store: Path
) -> None:
    put(inputs / "a.parquet", 0, 20)
    put(inputs / "b.parquet", 20, 30)
    night("--index", "Flat")
    shards, vectors = files_in(store, "embeddings"), vectors_of(store)
    units, cut = units_of(store), files_of(store)[0]["cut"]
    (inputs / "deep").mkdir()
    (inputs / "a.parquet").rename(inputs / "deep" / "z.parquet")
    night()
    after = check_ledger(store, 30, carried=30)
    assert files_in(store, "embeddings") == shards
    assert vectors_of(store) == vectors
    files = {file["path"]: file["cut"] for file in files_of(store, after)}
    assert list(files) == ["b.parquet", "deep/z.parquet"]
    assert files["deep/z.parquet"] == cut > 0
    assert {unit["file"] for unit in units_of(store, after)} == set(files)
    assert {unit["path"] for unit in units_of(store, after)} == {unit["path"] for unit in units}
    assert "k3" in {hit["id"] for hit in open_store(str(store)).search(sentences(1, 3), k=5)[0]}
    night()
    assert units_of(store, check_ledger(store, 30, carried=30)) == units_of(store, after)


def test_a_file_keeps_its_cut_until_all_is_embedded_again(
    embed: Run, inputs: Path, store: Path
) -> None:
    def night(meta: int, *options: object) -> int:
        rows = [{"meta": "x" * meta, "text": text} for text in sentences(100)]
        embed(write_jsonl(inputs / "a.jsonl", rows), *options).ok()
        return files_of(store)[0]["cut"] or 0

    chosen = night(900, "--unit-tokens", 400)
    assert night(10) == night(10, "--keep-columns", "meta") == chosen > 3 * 400
    assert 0 < night(10, "--reembed") < chosen
    check_ledger(store, 100)


def test_without_an_id_column_vectors_are_reused_and_ids_are_new(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(inputs / "a.parquet", 0, 10)
    put(inputs / "b.parquet", 10, 20)
    embed(inputs / "*", "--id-column", "").ok()
    before = vectors_of(store)
    forbid_model(monkeypatch)
    (inputs / "a.parquet").rename(inputs / "z.parquet")
    embed(inputs / "*").ok()
    check_ledger(store, 20, carried=10, reused=10)
    after = vectors_of(store)
    assert all(after[f"z.parquet#{i}"] == before[f"a.parquet#{i}"] for i in range(10))
    assert not any(i.startswith("a.") for i in after)
