"""embed --append: files of earlier runs stay though --input does not name them. In Python, batches
of rows stand beside each other and beside files.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    ids_of,
    manifest_of,
    sentences,
    vectors_of,
    write_lines,
    write_parquet,
)
from helpers.snapshots import files_of

import sentence_beam as sb
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.verification import faults


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
    options = ("--id-column", "id", "--keep-columns", "n", "--index", "Flat")
    embed(days[0] / "*", *options, "--append").ok()
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
    assert "10" in run("history", "--store", store).ok().out.splitlines()[-1]
    run("index", "--store", store, "--retrain").ok()
    embed(days[2] / "*", "--append").ok()
    check_ledger(store, 15, embedded=5, carried=10)
    run("verify", "--store", store).ok()
    # without it a run has what it names
    embed([days[1] / "*", days[2] / "*"]).ok()
    manifest = check_ledger(store, 10, carried=10)
    assert manifest["input"]["globs"] == [f"{days[1]}/*", f"{days[2]}/*"]


def test_a_copy_under_another_name_is_counted_and_its_ids_are_duplicates(
    embed: Run, days: list[Path], store: Path
) -> None:
    embed(days[0] / "*", "--id-column", "id").ok()
    embed(days[0] / "*", "--append").ok()
    check_ledger(store, 5, carried=5)
    shutil.copy(days[0] / "p0.parquet", days[1] / "p9.parquet")
    out = embed(days[1] / "p9*", "--append").ok().out
    check_ledger(store, 10, embedded=0, reused=5, carried=5)
    assert "5 rows have an id that an earlier row has" in out


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


def test_nothing_else_may_change(embed: Run, days: list[Path], store: Path) -> None:
    embed(days[0] / "*").ok()
    before = manifest_of(store)
    changes = [("--keep-columns", "n"), ("--unit-tokens", 7), ("--reembed",)]
    for change in changes:
        name = change[0].removeprefix("--").replace("-", "_")
        embed(days[1] / "*", "--append", *change).failed(2, "--append", name)
    assert manifest_of(store) == before


# --- rows that a program holds

TEXTS = sentences(12)


@pytest.fixture
def how(model: Path, store: Path) -> dict[str, Any]:
    return {"store": store, "model": model, "dtype": "float32", "append": True}


def work(store: sb.Store) -> tuple[int, ...]:
    """Rows that were embedded, reused and carried; a store without a fault."""
    assert not list(faults(store.manifest))
    found = store.manifest.data["work"]
    return found["embedded"], found["reused"], found["carried"]


def batches(store: sb.Store) -> list[str]:
    return [file["path"] for file in files_of(store.root)]


def texts(store: sb.Store) -> list[str]:
    return store.dataset().to_table(columns=["text"])["text"].to_pylist()


def test_batches_stand_beside_each_other_and_the_same_one_again_adds_nothing(
    how: dict[str, Any],
) -> None:
    assert work(sb.embed(TEXTS[:4], batch="monday", **how)) == (4, 0, 0)
    store = sb.embed(TEXTS[4:6], batch="day 2", **how)
    assert (work(store), batches(store)) == ((2, 0, 4), ["day 2.parquet", "monday.parquet"])
    again = sb.embed(TEXTS[4:6], batch="day 2", **how)
    assert (work(again), sorted(texts(again))) == ((0, 0, 6), sorted(TEXTS[:6]))
    assert [file["source"] for file in files_of(again.root)] == [
        "rows://day 2.parquet", "rows://monday.parquet"
    ]  # fmt: skip


def test_a_batch_without_a_name_is_named_by_its_rows(how: dict[str, Any]) -> None:
    sb.embed(TEXTS[:4], **how)
    assert work(sb.embed([{"text": text} for text in TEXTS[:4]], **how)) == (0, 0, 4)
    store = sb.embed(TEXTS[4:6], **how)
    assert (work(store), len(batches(store))) == ((2, 0, 4), 2)
    assert sorted(texts(store)) == sorted(TEXTS[:6])
    assert len(set(store.numpy()[0])) == 6


def test_rows_after_files_and_files_after_rows(how: dict[str, Any], inputs: Path) -> None:
    file = write_parquet(inputs / "a.parquet", TEXTS[:4])
    sb.embed(file, **how)
    assert work(sb.embed(TEXTS[4:6], batch="b", **how)) == (2, 0, 4)
    store = sb.embed(write_parquet(inputs / "c.parquet", TEXTS[6:8]), **how)
    assert (work(store), batches(store)) == ((2, 0, 6), ["a.parquet", "b.parquet", "c.parquet"])
    assert work(sb.embed(TEXTS[4:6], batch="b", **how)) == (0, 0, 8)
    assert sorted(texts(store)) == sorted(TEXTS[:8])
    with pytest.raises(sb.OptionError, match=r"relative path c.parquet"):
        sb.embed(TEXTS[8:9], batch="c", **how)
    store = sb.embed(TEXTS[2:6], **{**how, "append": False})  # which takes the place of all
    assert (texts(store), batches(store)) == (TEXTS[2:6], ["rows.parquet"])


def test_rows_after_files_of_a_format_that_the_store_remembers(
    how: dict[str, Any], inputs: Path
) -> None:
    sb.embed(write_lines(inputs / "a.log", TEXTS[:4]), format="text", **how)
    store = sb.embed(TEXTS[4:6], batch="b", **how)
    assert sorted(texts(store)) == sorted(TEXTS[:6])


def test_names_that_do_not_work(how: dict[str, Any]) -> None:
    names = {"a/b": "'a/b'", "day[1]": "'day[1]'", " ": "' '", "\n": "'\\n'"}
    said = [(TEXTS, {"batch": name}, f"batch: {shown} is no name") for name, shown in names.items()]
    said += [
        (TEXTS, {"batch": "x" * 201}, "batch: 'xxx"),
        (
            TEXTS,
            {"batch": "a", "append": False},
            "batch: it names rows that are appended; say append",
        ),
        ("*.csv", {"batch": "a"}, "batch: it names rows in memory, and files have names of their"),
    ]
    for given, options, message in said:
        with pytest.raises(sb.OptionError) as caught:
            sb.embed(given, **{**how, **options})
        assert str(caught.value).startswith(message)
        assert not how["store"].exists()
