"""What the page shows of a text and of a store's columns: marked words, folded texts, filters to
begin with.
"""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_parquet

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.search.snapshot_rows import SnapshotRows
from sentence_beam.transforms.serve.filter_examples import examples
from sentence_beam.transforms.serve.texts import FOLDED, MOST_TEXT, cut_text
from sentence_beam.transforms.store import open_store

pytestmark = pytest.mark.usefixtures("plain_beam")


def marked(text: str, query: str) -> list[str]:
    """The words that are marked; the parts must be the whole text."""
    parts = cut_text(text, query).seen
    assert "".join(part for part, _ in parts) == text
    return [part for part, is_marked in parts if is_marked]


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("Remove a directory.", "remove a DIRECTORY", ["Remove", "directory"]),
        ("Directories, dogs.", "dog", ["dogs"]),
        ("a of it", "a of it", []),
        ("a dog", "", []),
        ("", "dog", []),
        ("東京都に住む", "京都", ["京都"]),
        ("東京都に住む", "東京都", ["東京", "都"]),
    ],
)
def test_words_of_the_query_are_marked(text: str, query: str, found: list[str]) -> None:
    assert marked(text, query) == found


def test_a_long_text_is_folded_around_the_words_of_the_query() -> None:
    text = "word " * 1000 + "needle " + "word " * 1000
    found = cut_text(text, "the needle")
    seen = "".join(part for part, _ in found.seen)
    assert ("needle", True) in found.seen
    assert len(seen) <= FOLDED + 4
    assert seen.startswith("… ")
    assert seen.endswith(" …")
    assert found.characters == len(text)
    assert found.whole is not None
    assert "".join(part for part, _ in found.whole) == text
    assert cut_text(text[:FOLDED], "needle").whole is None
    longest = cut_text("x" * (MOST_TEXT + 1), "").whole
    assert longest is not None
    assert len(longest[0][0]) == MOST_TEXT + 2


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        pytest.param({}, ["text LIKE '%Elephants%'"], marks=pytest.mark.slow),
        ({"it's": ["O'Hara", "b"], "year": [2020, None], "tags": [None, ["a"]]},
         ["\"it's\" = 'O''Hara'", "year >= 2020", "'a' IN tags", "\"it's\" = 'O''Hara' AND year >= 2020"]),
        ({"ok": [True, False], "day": [date(2026, 1, 2), None], "raw": [b"x", b""], "none": [float("nan"), None]},
         ["ok", "day >= '2026-01-02'", "ok AND day >= '2026-01-02'"]),
        ({"long": ["x" * 50, "b"]}, ["text LIKE '%Elephants%'"]),
    ],
)  # fmt: skip
def test_filters_to_begin_with(
    columns: dict[str, list[Any]], found: list[str], tmp_path: Path, model: Path
) -> None:
    write_parquet(tmp_path / "a.parquet", ["Elephants are big", "a dog"], **columns)
    command = [
        "embed",
        "--input",
        tmp_path / "a.parquet",
        "--store",
        tmp_path / "store",
        "--model",
        model,
    ]
    if columns:
        command += [
            "--keep-columns",
            ",".join(f'"{name}"' if "'" in name else name for name in columns),
        ]
    assert main([str(word) for word in command]) == 0
    store = open_store(str(tmp_path / "store"))
    rows = SnapshotRows(store.manifest)
    assert examples(rows) == found
    assert all(store.search("dog", where=where) for where in found)
