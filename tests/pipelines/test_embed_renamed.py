"""Files that only have another name: carried where ids come from a column, else read, with nothing
embedded again.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    rows_of,
    sentences,
    vectors_of,
    write_bytes,
    write_jsonl,
    write_parquet,
)
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.store import open_store


@pytest.fixture
def night(embed: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`embed` of all inputs with ids from a column; the model is there in the first night only."""
    calls: list[bool] = []

    def call(*options: object) -> Outcome:
        if calls:
            monkeypatch.setattr(
                "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
                lambda job: pytest.fail("the model was loaded"),
            )
        calls.append(True)
        return embed(inputs / "**", "--id-column", "id", "--unit-tokens", 60, *options).ok()

    return call


def put(path: Path, start: int, stop: int) -> Path:
    """Rows k<start> to k<stop>, in row groups of five."""
    ids = [f"k{i}" for i in range(start, stop)]
    return write_parquet(path, sentences(stop - start, start), 5, id=ids)


def paths(store: Path) -> list[str]:
    """Of the current shards."""
    return [unit["path"] for unit in units_of(store) if unit["path"]]


def test_a_renamed_file_is_carried_and_stays_so(
    night: Callable[..., Outcome], inputs: Path, store: Path
) -> None:
    put(inputs / "a.parquet", 0, 20)
    put(inputs / "b.parquet", 20, 30)
    night("--index", "Flat")
    before, shards, vectors = manifest_of(store), files_in(store, "embeddings"), vectors_of(store)
    (inputs / "deep").mkdir()
    (inputs / "a.parquet").rename(inputs / "deep" / "z.parquet")
    night()
    after = check_ledger(store, 30, carried=30)
    assert files_in(store, "embeddings") == shards
    assert vectors_of(store) == vectors
    assert [file["path"] for file in files_of(store, after)] == ["b.parquet", "deep/z.parquet"]
    assert {unit["file"] for unit in units_of(store, after)} == {"b.parquet", "deep/z.parquet"}
    assert sorted(paths(store)) == sorted(unit["path"] for unit in units_of(store, before))
    assert "k3" in {hit["id"] for hit in open_store(str(store)).search(sentences(1, 3), k=5)[0]}
    night()
    assert units_of(store, check_ledger(store, 30, carried=30)) == units_of(store, after)


def test_without_an_id_column_vectors_are_reused_and_ids_are_new(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(inputs / "a.parquet", 0, 10)
    put(inputs / "b.parquet", 10, 20)
    embed(inputs / "*", "--id-column", "").ok()
    before = vectors_of(store)
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
        lambda job: pytest.fail("the model was loaded"),
    )
    (inputs / "a.parquet").rename(inputs / "z.parquet")
    embed(inputs / "*").ok()
    check_ledger(store, 20, carried=10, reused=10)
    after = vectors_of(store)
    assert [after[f"z.parquet#{i}"] for i in range(10)] == [
        before[f"a.parquet#{i}"] for i in range(10)
    ]
    assert not any(i.startswith("a.") for i in after)


def test_the_same_bytes_packed_otherwise_are_another_file(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", [{"text": "one", "id": "k"}])
    write_bytes(inputs / "b.jsonl.gz", (inputs / "a.jsonl").read_bytes())
    embed(inputs / "*", "--id-column", "id").ok()
    (inputs / "b.jsonl.gz").rename(inputs / "c.jsonl")
    embed(inputs / "*", "--max-rejects", 0).failed(1, "c.jsonl", "gzip")
    (inputs / "c.jsonl").rename(inputs / "d.jsonl.gz")
    embed(inputs / "*").ok()
    check_ledger(store, 2, carried=2)


def test_a_file_under_another_value_of_a_kept_column_is_read_again(
    night: Callable[..., Outcome], inputs: Path, store: Path
) -> None:
    put(inputs / "lang=en/a.parquet", 0, 20)
    put(inputs / "lang=fr/b.parquet", 20, 30)
    night("--keep-columns", "lang")
    (inputs / "lang=en").rename(inputs / "lang=de")
    night()
    check_ledger(store, 30, embedded=0)
    assert {row["id"]: row["lang"] for row in rows_of(store)} == {
        f"k{i}": "de" if i < 20 else "fr" for i in range(30)
    }
    night()
    check_ledger(store, 30, carried=30)
