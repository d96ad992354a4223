"""--max-deletes: input that is missing empties no store."""

from pathlib import Path

import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import (
    check_ledger,
    edit_manifest,
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
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
            lambda job: pytest.fail("the model was loaded"),
        )
        embed(inputs / "*").failed(
            3, "15 of the 20 rows", store, "--max-deletes 0.5", "--max-deletes 1"
        )
        plan(inputs / "*").failed(3, "15 of the 20 rows")
    assert (manifest_of(store), files_in(store, "embeddings")) == (before, shards)
    assert "15 of the 20 rows" in run("history", "--store", store).ok().out
    embed(inputs / "*", "--max-deletes", 1).ok()
    check_ledger(store, 5, embedded=5)


def test_the_fraction_itself_is_let_through_and_the_given_one_is_remembered(
    embed: Run, parts: list[Path], inputs: Path, store: Path
) -> None:
    embed(inputs / "*").ok()
    for path in parts[2:]:
        path.unlink()
    embed(inputs / "*", "--max-deletes", 0.49).failed(3, "10 of the 20 rows")
    embed(inputs / "*", "--max-deletes", 0.5).ok()
    check_ledger(store, 10)
    embed(inputs / "*", "--max-deletes", 0.2).ok()
    parts[0].unlink()
    embed(inputs / "*").failed(3, "5 of the 10 rows", "--max-deletes 0.2")


def test_rows_of_text_files_are_counted_at_the_commit(
    embed: Run, inputs: Path, store: Path
) -> None:
    path = write_lines(inputs / "a.txt", sentences(20))
    embed(inputs / "*").ok()
    before = manifest_of(store)
    write_lines(path, sentences(9))
    embed(inputs / "*", "--index", "Flat").failed(3, "11 of the 20 rows")
    assert manifest_of(store) == before
    write_lines(path, sentences(10))
    embed(inputs / "*").ok()
    check_ledger(store, 10)


def test_rejected_rows_do_not_stand_for_deleted_ones(embed: Run, inputs: Path, store: Path) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(20))
    embed(inputs / "*").ok()
    write_parquet(path, [*sentences(5), *[""] * 15])
    embed(inputs / "*", "--max-rejects", 1).failed(3, "15 of the 20 rows", "--max-deletes")


def test_other_ids_are_no_deletions(
    embed: Run, parts: list[Path], inputs: Path, store: Path
) -> None:
    embed(inputs / "*").ok()
    for path in parts:
        path.rename(path.with_stem(f"another-{path.stem}"))
    embed(inputs / "*").ok()
    check_ledger(store, 20, embedded=0)


@pytest.mark.usefixtures("parts")
def test_everything_embedded_again_is_held_to_it_and_a_trial_is_not(
    embed: Run, run: Run, inputs: Path, store: Path, tmp_path: Path, model: Path
) -> None:
    embed(inputs / "*").ok()
    embed(inputs / "a*", "--reembed", "--pooler", "max").failed(3, "15 of the 20 rows")
    trial = ("embed", "--input", inputs / "*", "--store", tmp_path / "trial", "--model", model)
    run(*trial, "--limit", 10).ok()
    run(*trial, "--limit", 2).ok()
    check_ledger(tmp_path / "trial", 2)


def test_a_store_without_rows_takes_any_input(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", [""])
    embed(inputs / "*", "--max-rejects", 1).ok()
    check_ledger(store, 0, 1)
    write_lines(inputs / "a.txt", sentences(1))
    embed(inputs / "*").ok()
    check_ledger(store, 1)


@pytest.mark.usefixtures("parts")
def test_a_store_that_remembers_no_fraction_has_the_default(
    embed: Run, inputs: Path, store: Path
) -> None:
    embed(inputs / "*").ok()
    manifest = manifest_of(store)
    del manifest["options"]["max_deletes"]
    edit_manifest(store / "manifest.json", manifest)
    embed(inputs / "*").ok()
    embed(inputs / "a*").failed(3, "15 of the 20 rows")


def test_a_fraction_above_the_default_is_for_one_run(
    embed: Run, parts: list[Path], inputs: Path, store: Path
) -> None:
    embed(inputs / "*", "--max-deletes", 1).ok()
    assert manifest_of(store)["options"]["max_deletes"] == 0.5
    for path in parts[1:3]:
        path.unlink()
    embed(inputs / "*", "--max-deletes", 0.4).failed(3, "10 of the 20 rows")
    embed(inputs / "*", "--max-deletes", 0.5).ok()
    embed(inputs / "*", "--max-deletes", 0.2).ok()
    embed(inputs / "*", "--max-deletes", 0.9).ok()
    assert manifest_of(store)["options"]["max_deletes"] == 0.2
    parts[0].unlink()
    embed(inputs / "*").failed(3, "5 of the 10 rows", "--max-deletes 0.2")
    embed(inputs / "*", "--max-deletes", 1).ok()


def test_a_store_that_remembers_all_has_the_default(
    embed: Run, parts: list[Path], inputs: Path, store: Path
) -> None:
    embed(inputs / "*").ok()
    manifest = manifest_of(store)
    manifest["options"]["max_deletes"] = 1.0
    edit_manifest(store / "manifest.json", manifest)
    for path in parts[1:]:
        path.unlink()
    embed(inputs / "*").failed(3, "15 of the 20 rows")


def test_a_second_day_in_the_place_of_the_first_ends_the_run_and_can_be_appended(
    embed: Run, inputs: Path, store: Path, partition: str
) -> None:
    def day(number: int, *options: object) -> Outcome:
        ids = [f"{number}-{i}" for i in range(6)]
        path = write_parquet(inputs / f"day{number}.parquet", sentences(6, 6 * number), id=ids)
        return embed(path, "--id-column", "id", *options)

    day(1).ok()
    before = manifest_of(store)
    append = (
        "say --append to keep them"
        if partition == "file"
        else "see whether all input is there, or name"
    )
    day(2).failed(
        3,
        f"6 of the 6 rows of {store}",
        append,
        "another --store",
        f"`sentence-beam rollback -1 --store {store}`",
    )
    assert manifest_of(store) == before
    if partition == "file":
        day(2, "--append").ok()
        check_ledger(store, 12, carried=6)


@pytest.mark.parametrize("has_ids", [False, True])
def test_a_second_collection_whose_files_have_the_same_names_ends_the_run(
    embed: Run, tmp_path: Path, store: Path, partition: str, has_ids: bool
) -> None:
    def collection(name: str, texts: list[str]) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        ids = {"id": [f"row {i}" for i in range(len(texts))]} if has_ids else {}
        return write_parquet(tmp_path / name / "train.parquet", texts, **ids)

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


@pytest.mark.parametrize("partition", ["file"])  # with content, rows are found by their texts
def test_a_file_that_is_edited_keeps_its_rows(embed: Run, inputs: Path, store: Path) -> None:
    """Whose ids are other ones then: in text files they are places of bytes."""
    first = write_lines(inputs / "a.txt", sentences(6))
    write_lines(inputs / "b.txt", sentences(3, 10))
    embed(inputs / "*").ok()
    write_lines(first, ["another line", *sentences(6)[1:]])
    embed(inputs / "*", "--max-deletes", 0).ok()
    check_ledger(store, 9)
    write_lines(first, ["another line", *sentences(4, 50), *sentences(6, 60)])
    (inputs / "b.txt").unlink()
    embed(inputs / "*").failed(3, "3 of the 9 rows", "--max-deletes 0 ")
