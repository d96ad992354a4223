"""Formats are known by the registry alone: one that is added there is read by everybody.

Covers transforms/corpus/formats/format.py.
Covers transforms/corpus/formats/table_formats.py.
"""

from collections import Counter
from pathlib import Path

import pytest
from helpers.cards import Cards, write_cards

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import (
    Columns,
    limit_spans,
    list_files,
    match_inputs,
    plan_file,
    read_files,
    read_header,
    read_values,
)
from sentence_beam.transforms.corpus.formats.registry import FORMATS, open_columns
from sentence_beam.transforms.corpus.query_rows import QueryFiles, read_queries
from sentence_beam.transforms.corpus.row_counting import count_rows, count_up_to, estimate_rows
from sentence_beam.transforms.evaluation.pair_files import read_labelled
from sentence_beam.transforms.training.train_options import TrainOptions
from sentence_beam.transforms.training.training_examples import read_examples

ROWS = [
    {
        "id": f"id{n}",
        "text": f"text {n}",
        "label": str(n % 2),
        "sentence1": f"one {n}",
        "sentence2": f"two {n}",
    }
    for n in range(6)
]


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a format that was put into the registry."""
    monkeypatch.setitem(FORMATS, Cards.name, Cards())
    path = tmp_path / "in" / "a.cards"
    path.parent.mkdir()
    path.write_text(write_cards(ROWS))
    return path


def test_a_format_of_the_registry_is_found_in_a_folder(cards: Path) -> None:
    (file,) = match_inputs(str(cards.parent))
    assert (file.path, file.format) == (str(cards), "cards")


def test_its_spans_are_planned_counted_and_limited(cards: Path) -> None:
    (file,) = match_inputs(str(cards))
    spans = plan_file(file, "text", 1000)
    assert [(span.start, span.stop) for span in spans] == [(0, None)]
    assert (count_rows(spans[0]), count_up_to(spans[0], 4), estimate_rows(spans[0])) == (6, 4, None)
    assert [span.stop for span in limit_spans(spans, 2)] == [2]


def test_its_rows_are_read_with_ids_and_kept_columns(cards: Path) -> None:
    (unit,) = read_files(list_files([str(cards)], "auto"), Columns("text", "id", ("label",)))
    assert (unit.ids, unit.texts) == ([row["id"] for row in ROWS], [row["text"] for row in ROWS])
    assert unit.kept is not None
    assert unit.kept.to_pylist() == [{"label": row["label"]} for row in ROWS]
    (unit,) = read_files(list_files([str(cards)], "cards"), Columns())
    assert unit.ids[:2] == ["a.cards#0", "a.cards#1"]


def test_its_columns_are_checked(cards: Path) -> None:
    (file,) = match_inputs(str(cards))
    assert open_columns(file).kept_types(Columns("text", "id", ("label",))) == (
        ("label", "arrow:string"),
    )
    with pytest.raises(
        OptionError,
        match=r"has no column txet \(text_column\); did you mean text\? its columns: id,",
    ):
        list(read_files([file], Columns("txet")))


def test_its_values_are_read_for_tasks_trainings_and_queries(cards: Path) -> None:
    (file,) = match_inputs(str(cards))
    assert read_header(file) == list(ROWS[0])
    assert [(row.number, list(row.values)) for row in read_values(file, ["label", "id"])][:2] == [
        (1, ["0", "id0"]),
        (2, ["1", "id1"]),
    ]
    assert read_labelled(str(cards)).first == [row["sentence1"] for row in ROWS]
    options = TrainOptions(inputs=(str(cards),), objective="classification", output="out")
    assert read_examples("--input", [str(cards)], options).columns["label"] == ["0", "1"] * 3
    assert list(read_queries(QueryFiles((str(cards),))).texts) == [row["text"] for row in ROWS]


def test_its_damage_is_one_line(cards: Path) -> None:
    cards.write_bytes(b"\xff")
    (file,) = match_inputs(str(cards))
    with pytest.raises(
        SentenceBeamError,
        match=r"a.cards is not a readable Cards file \(.*\); replace it or leave it",
    ):
        list(read_files([file], Columns()))


def test_an_ending_is_of_one_format() -> None:
    counts = Counter(ending for known in FORMATS.values() for ending in known.endings)
    assert set(counts.values()) == {1}
    assert all(ending.startswith(".") and ending == ending.lower() for ending in counts)


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_plain_text_has_no_values(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text\n")
    (file,) = match_inputs(str(tmp_path / name))
    with pytest.raises(
        OptionError,
        match=f"{name} is plain text and has no columns; give TSV, CSV, JSON lines or Parquet",
    ):
        read_header(file)
