"""`sb.embed(rows, append=True, batch=...)`: batches of rows that a program holds, beside each other
and beside files.
"""

from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import sentences, write_lines, write_parquet
from helpers.snapshots import files_of

import sentence_beam as sb
from sentence_beam.transforms.store.verification import faults

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


def test_rows_after_files_of_a_format_that_the_store_remembers(
    how: dict[str, Any], inputs: Path
) -> None:
    sb.embed(write_lines(inputs / "a.log", TEXTS[:4]), format="text", **how)
    store = sb.embed(TEXTS[4:6], batch="b", **how)
    assert sorted(texts(store)) == sorted(TEXTS[:6])


def test_a_batch_of_the_name_of_a_file_is_refused(how: dict[str, Any], inputs: Path) -> None:
    sb.embed(write_parquet(inputs / "a.parquet", TEXTS[:4]), **how)
    with pytest.raises(sb.OptionError, match="relative path a.parquet"):
        sb.embed(TEXTS[4:6], batch="a", **how)


def test_without_append_rows_take_the_place_of_all(how: dict[str, Any]) -> None:
    sb.embed(TEXTS[:4], batch="a", **how)
    how["append"] = False
    store = sb.embed(TEXTS[2:6], **how)
    assert (texts(store), batches(store)) == (TEXTS[2:6], ["rows.parquet"])


def test_by_content_there_are_no_batches(how: dict[str, Any]) -> None:
    with pytest.raises(sb.OptionError, match="append: partition content"):
        sb.embed(TEXTS[:4], partition="content", batch="a", **how)
    assert not how["store"].exists()


@pytest.mark.parametrize(
    ("input", "options", "message"),
    [
        (
            TEXTS,
            {"batch": "a", "append": False},
            "batch: it names rows that are appended; say append=True too",
        ),
        (TEXTS, {"batch": "a/b"}, "batch: 'a/b' is no name"),
        (TEXTS, {"batch": "day[1]"}, "batch: 'day[1]' is no name"),
        (TEXTS, {"batch": " "}, "batch: ' ' is no name"),
        (TEXTS, {"batch": "\n"}, "batch: '\\n' is no name"),
        (TEXTS, {"batch": "x" * 201}, "batch: 'xxx"),
        (
            "*.csv",
            {"batch": "a"},
            "batch: it names rows in memory, and files have names of their own",
        ),
    ],
)
def test_names_that_do_not_work(
    how: dict[str, Any], input: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(sb.OptionError) as caught:
        sb.embed(input, **{**how, **options})
    assert str(caught.value).startswith(message)
    assert not how["store"].exists()
