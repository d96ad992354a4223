"""--max-deletes: input that is missing empties no store."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, edit_manifest, files_in, manifest_of, sentences, write_lines, write_parquet


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    """Both ways to cut."""
    return str(request.param)


@pytest.fixture
def parts(inputs: Path) -> list[Path]:
    """Four Parquet files of five rows each."""
    return [write_parquet(inputs / f"{name}.parquet", sentences(5, 5 * i)) for i, name in enumerate("abcd")]


def test_too_few_rows_are_refused_before_anything_is_embedded(
    embed: Run, run: Run, parts: list[Path], inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(inputs / "*").ok()
    before, shards = manifest_of(store), files_in(store, "embeddings")
    for path in parts[1:]:
        path.unlink()
    write_parquet(parts[0], sentences(5, 100))
    with monkeypatch.context() as patch:
        patch.setattr("transforms.steps.load_encoder.load_encoder", lambda job: pytest.fail("the model was loaded"))
        embed(inputs / "*").failed(3, "15 of the 20 rows", store, "--max-deletes 0.5", "--max-deletes 1")
        embed(inputs / "*", "--dry-run").failed(3, "15 of the 20 rows")
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


def test_rows_of_text_files_are_counted_at_the_commit(embed: Run, inputs: Path, store: Path) -> None:
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


def test_other_ids_are_no_deletions(embed: Run, parts: list[Path], inputs: Path, store: Path) -> None:
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
def test_a_store_that_remembers_no_fraction_has_the_default(embed: Run, inputs: Path, store: Path) -> None:
    embed(inputs / "*").ok()
    manifest = manifest_of(store)
    del manifest["options"]["max_deletes"]
    edit_manifest(store / "manifest.json", manifest)
    embed(inputs / "*").ok()
    embed(inputs / "a*").failed(3, "15 of the 20 rows")


def test_a_fraction_above_the_default_is_for_one_run(embed: Run, parts: list[Path], inputs: Path, store: Path) -> None:
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


def test_a_store_that_remembers_all_has_the_default(embed: Run, parts: list[Path], inputs: Path, store: Path) -> None:
    embed(inputs / "*").ok()
    manifest = manifest_of(store)
    manifest["options"]["max_deletes"] = 1.0
    edit_manifest(store / "manifest.json", manifest)
    for path in parts[1:]:
        path.unlink()
    embed(inputs / "*").failed(3, "15 of the 20 rows")
