"""A format that is put into the registry is embedded as the others are."""

from pathlib import Path

import pytest
from helpers.cards import Cards, write_cards
from helpers.commands import Run
from helpers.corpora import check_ledger, rows_of, sentences

from sentence_beam.transforms.corpus.formats.registry import FORMATS


def test_a_new_format_is_embedded(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, Cards.name, Cards())
    rows = [{"id": f"id{n}", "text": text, "lang": "en"} for n, text in enumerate(sentences(20))]
    (inputs / "a.cards").write_text(write_cards(rows))
    embed(inputs, "--id-column", "id", "--keep-columns", "lang").ok()
    check_ledger(store, 20)
    assert {(row["id"], row["lang"]) for row in rows_of(store)} == {
        (row["id"], "en") for row in rows
    }
