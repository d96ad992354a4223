"""embed --append: files of earlier runs stay though --input does not name them."""

import shutil
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    ids_of,
    manifest_of,
    sentences,
    vectors_of,
    write_parquet,
)
from helpers.snapshots import files_of

from sentence_beam.transforms.store import open_store


@pytest.fixture
def days(inputs: Path) -> list[Path]:
    """A folder for each of three days, with a file of five rows that has the same name in all."""
    folders = [inputs / f"day{day}" for day in range(3)]
    for day, folder in enumerate(folders):
        ids = [f"k{row}" for row in range(5 * day, 5 * day + 5)]
        write_parquet(folder / f"p{day}.parquet", sentences(5, 5 * day), id=ids, n=list(range(5)))
    return folders


def test_earlier_files_stay_with_their_rows_and_their_index(
    embed: Run, plan: Run, run: Run, days: list[Path], store: Path
) -> None:
    embed(
        days[0] / "*", "--id-column", "id", "--keep-columns", "n", "--index", "Flat", "--append"
    ).ok()
    first, vectors = files_in(store, "embeddings"), vectors_of(store)
    shutil.rmtree(days[0])
    out = plan(days[1] / "*", "--append").ok().out
    assert "files       2 " in out
    assert "1 unchanged" in out
    embed(days[1] / "*", "--append").ok()
    manifest = check_ledger(store, 10, embedded=5, carried=5)
    assert [file["path"] for file in files_of(store, manifest)] == ["p0.parquet", "p1.parquet"]
    assert manifest["input"]["globs"] == [f"{days[0]}/*", f"{days[1]}/*"]
    assert manifest["index"]["rows"] == 10
    assert first.items() <= files_in(store, "embeddings").items()
    assert vectors.items() <= vectors_of(store).items()
    assert {hit["id"] for hit in open_store(str(store)).search(sentences(1), k=10)[0]} == {
        f"k{i}" for i in range(10)
    }
    run("verify", "--store", store).ok()
    assert "10" in run("history", "--store", store).ok().out.splitlines()[-1]
    run("index", "--store", store, "--retrain").ok()
    embed(days[2] / "*", "--append").ok()
    check_ledger(store, 15, embedded=5, carried=10)
    run("verify", "--store", store).ok()


def test_without_it_a_later_run_has_what_it_names(
    embed: Run, days: list[Path], inputs: Path, store: Path
) -> None:
    embed(days[0] / "*").ok()
    embed(days[1] / "*", "--append").ok()
    embed([days[0] / "*", days[1] / "*"]).ok()
    check_ledger(store, 10, carried=10)
    embed([days[1] / "*", days[2] / "*"]).ok()
    manifest = check_ledger(store, 10, embedded=5, carried=5)
    assert manifest["input"]["globs"] == [f"{days[1]}/*", f"{days[2]}/*"]
    assert not any(i.startswith("p0") for i in ids_of(store))


def test_a_copy_under_another_name_is_counted_and_its_ids_are_duplicates(
    embed: Run, days: list[Path], store: Path
) -> None:
    embed(days[0] / "*", "--id-column", "id").ok()
    shutil.copy(days[0] / "p0.parquet", days[1] / "p9.parquet")
    out = embed(days[1] / "p9*", "--append").ok().out
    check_ledger(store, 10, embedded=0, reused=5, carried=5)
    assert "5 rows have an id that an earlier row has" in out


def test_the_same_file_again_and_the_same_content_elsewhere_change_nothing(
    embed: Run, days: list[Path], store: Path
) -> None:
    embed(days[0] / "*").ok()
    embed(days[0] / "*", "--append").ok()
    check_ledger(store, 5, carried=5)
    shutil.copy(days[0] / "p0.parquet", days[1] / "p0.parquet")
    embed(days[1] / "p0*", "--append").ok()
    manifest = check_ledger(store, 5, carried=5)
    assert files_of(store, manifest)[0]["source"] == str(days[1] / "p0.parquet")


def test_a_known_name_with_other_content_is_refused_with_a_pattern_that_works(
    embed: Run, days: list[Path], store: Path
) -> None:
    embed(days[0] / "*", "--id-column", "").ok()
    before = manifest_of(store)
    (days[1] / "p1.parquet").rename(days[1] / "p0.parquet")
    said = embed(days[1] / "*", "--append").failed(
        2, days[1] / "p0.parquet", days[0] / "p0.parquet", "other content"
    )
    assert manifest_of(store) == before
    embed(said.partition("--input '")[2].partition("'")[0], "--append").ok()
    check_ledger(store, 10, embedded=5, carried=5)
    assert {i.partition("#")[0] for i in ids_of(store)} == {"p0.parquet", "day1/p0.parquet"}
    write_parquet(days[0] / "p0.parquet", sentences(6, 50))
    out = embed(days[0] / "p0.parquet", "--append").ok().out
    check_ledger(store, 11, embedded=6, carried=5)
    assert "changes     1 row added, 5 changed, 0 deleted" in out
    assert {i.partition("#")[0] for i in ids_of(store)} == {"p0.parquet", "day1/p0.parquet"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--keep-columns", "n"], "keep_columns"),
        (["--unit-tokens", 7], "unit_tokens"),
        (["--reembed"], "reembed"),
    ],
)
def test_nothing_else_may_change(
    embed: Run, days: list[Path], store: Path, options: list[object], name: str
) -> None:
    embed(days[0] / "*").ok()
    before = manifest_of(store)
    embed(days[1] / "*", "--append", *options).failed(2, "--append", name)
    assert manifest_of(store) == before


def test_not_by_content(embed: Run, days: list[Path], store: Path) -> None:
    embed(days[0] / "*", "--append", "--partition", "content").failed(
        2, "--append", "--partition content"
    )
    assert not store.exists()


def test_a_lost_shard_of_a_file_that_is_not_named(
    embed: Run, days: list[Path], store: Path
) -> None:
    embed(days[0] / "*").ok()
    shard = next((store / "embeddings").iterdir())
    shard.unlink()
    embed(days[1] / "*", "--append").failed(1, shard, days[0] / "p0.parquet")
    embed([days[0] / "*", days[1] / "*"], "--append").ok()
    check_ledger(store, 10)
