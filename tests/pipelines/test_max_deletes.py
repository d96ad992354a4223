"""--max-deletes: input that is missing empties no store."""

from pathlib import Path

import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    sentences,
    write_lines,
    write_parquet,
)

import sentence_beam as sb


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    """Both ways to cut."""
    return str(request.param)


@pytest.fixture
def parts(inputs: Path) -> list[Path]:
    """Four Parquet files of five rows each."""
    return [
        write_parquet(inputs / f"{name}.parquet", sentences(5, 5 * i))
        for i, name in enumerate("abcd")
    ]


def test_too_few_rows_are_refused_before_anything_is_embedded(
    embed: Run,
    plan: Run,
    run: Run,
    parts: list[Path],
    inputs: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embed(inputs / "*").ok()
    before, shards = manifest_of(store), files_in(store, "embeddings")
    for path in parts[1:]:
        path.unlink()
    write_parquet(parts[0], sentences(5, 100))
    said = "15 of the 20 rows"
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
            lambda job: pytest.fail("the model was loaded"),
        )
        embed(inputs / "*").failed(3, said, store, "--max-deletes 0.5", "--max-deletes 1")
        embed(inputs / "*", "--reembed", "--pooler", "max").failed(3, said)
        plan(inputs / "*").failed(3, said)
    assert (manifest_of(store), files_in(store, "embeddings")) == (before, shards)
    assert said in run("history", "--store", store).ok().out
    embed(inputs / "*", "--max-deletes", 1).ok()
    check_ledger(store, 5, embedded=5)


def test_rows_of_text_files_are_counted_at_the_commit_and_a_given_fraction_is_remembered(
    embed: Run, inputs: Path, store: Path
) -> None:
    path = write_lines(inputs / "a.txt", [""])
    embed(inputs / "*", "--max-rejects", 1).ok()
    write_lines(path, sentences(20))
    embed(inputs / "*").ok()  # a store without rows takes any input
    before = manifest_of(store)
    write_lines(path, sentences(9))
    embed(inputs / "*", "--index", "Flat").failed(3, "11 of the 20 rows")
    assert manifest_of(store) == before
    write_lines(path, sentences(10))
    embed(inputs / "*").ok()
    check_ledger(store, 10)
    embed(inputs / "*", "--max-deletes", 0.2).ok()
    write_lines(path, sentences(7))
    embed(inputs / "*").failed(3, "3 of the 10 rows", "--max-deletes 0.2")


def test_rejected_rows_do_not_stand_for_deleted_ones(embed: Run, inputs: Path, store: Path) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(20))
    embed(inputs / "*").ok()
    write_parquet(path, [*sentences(5), *[""] * 15])
    embed(inputs / "*", "--max-rejects", 1).failed(3, "15 of the 20 rows", "--max-deletes")


@pytest.mark.usefixtures("parts")
def test_a_trial_may_have_fewer_rows_than_the_one_before(
    embed: Run, inputs: Path, store: Path
) -> None:
    embed(inputs / "*", "--limit", 10).ok()
    embed(inputs / "*", "--limit", 2).ok()
    check_ledger(store, 2)


def test_a_second_day_in_the_place_of_the_first_ends_the_run_and_can_be_appended(
    embed: Run, inputs: Path, store: Path, partition: str
) -> None:
    def day(number: int, *options: object) -> Outcome:
        ids = [f"{number}-{i}" for i in range(6)]
        path = write_parquet(inputs / f"day{number}.parquet", sentences(6, 6 * number), id=ids)
        return embed(path, "--id-column", "id", *options)

    day(1).ok()
    before, by_file = manifest_of(store), partition == "file"
    append = "say --append to keep them" if by_file else "see whether all input is there, or name"
    undo = f"`sentence-beam rollback -1 --store {store}`"
    day(2).failed(3, f"6 of the 6 rows of {store}", append, "another --store", undo)
    assert manifest_of(store) == before
    if by_file:
        day(2, "--append").ok()
        check_ledger(store, 12, carried=6)


def test_a_second_collection_whose_files_have_the_same_names_ends_the_run(
    embed: Run, tmp_path: Path, store: Path, partition: str
) -> None:
    def collection(name: str, texts: list[str]) -> Path:
        return write_parquet(tmp_path / name / "train.parquet", texts)

    texts = sentences(6)
    embed(collection("one", texts), "--partition", partition).ok()
    before = manifest_of(store)
    embed(collection("two", sentences(6, 50))).failed(3, "6 of the 6 rows", "another --store")
    assert manifest_of(store) == before
    # a later export of the same collection, into a folder of its own
    embed(collection("three", [*texts[:4], *sentences(2, 20)])).ok()


def test_ids_of_documents_are_counted_not_their_pieces(
    embed: Run, inputs: Path, store: Path
) -> None:
    ids = ["long", "short", "other"]
    texts = [" ".join(sentences(20)), *sentences(2, 30)]
    how = ("--id-column", "id", "--chunks", "sentences", "--max-deletes", 0)
    write_parquet(inputs / "a.parquet", texts, id=ids)
    embed(inputs / "a.parquet", *how).ok()
    write_parquet(inputs / "b.parquet", [*sentences(3, 40)], id=ids)
    (inputs / "a.parquet").unlink()
    embed(inputs / "*", *how).ok()
    write_parquet(inputs / "b.parquet", [*sentences(3, 40)], id=["new", *ids[1:]])
    embed(inputs / "*", *how).failed(3, "1 of the 3 rows")


def test_other_rows_of_a_program_do_not_take_the_place_of_all(model: Path, store: Path) -> None:
    first, second = sentences(6), sentences(6, 6)
    sb.embed(first, store=store, model=model, dtype="float32")
    sb.embed(first[::-1], store=store)
    with pytest.raises(
        sb.DataGateError,
        match="6 of the 6 rows .* say append=True to keep them, or name another store .*",
    ):
        sb.embed(second, store=store)
    sb.embed(second, store=store, append=True)
    check_ledger(store, 12)
