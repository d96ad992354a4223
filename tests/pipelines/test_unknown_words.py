"""--max-unknown: texts that a model cannot read end a run."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, manifest_of, sentences, write_lines
from helpers.few_words import mind_unknown_words


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


THAI = [f"ค{n}" for n in range(12)]  # one token each, which is the same for all


@pytest.fixture(autouse=True)
def _as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    mind_unknown_words(monkeypatch)


def test_texts_that_the_model_cannot_read_end_the_run(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", THAI)
    said = embed(inputs / "*", "--prompt", "the dog ").failed(
        3, "12 of 12 tokens are unknown", "--max-unknown 0.3"
    )
    assert "--model intfloat/multilingual-e5-small" in said
    assert manifest_of(store) is None
    out = embed(inputs / "*", "--prompt", "the dog ", "--max-unknown", 1).ok().out
    assert "unknown     100.0 % of 12 tokens" in out
    assert check_ledger(store, 12)["tokens"]["unknown"] == 12


def test_a_tiny_store_of_unknown_words_alone_is_refused(embed: Run, inputs: Path) -> None:
    write_lines(inputs / "a.txt", THAI[:4])
    embed(inputs / "*").failed(3, "4 of 4 tokens are unknown")
    write_lines(inputs / "a.txt", ["the dog", *THAI[:4]])
    embed(inputs / "*").ok()


def test_few_unknown_words_of_a_night_end_no_run(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    """Tokens of rows that are carried over were counted when they were embedded."""
    write_lines(inputs / "a.txt", ["the dog", *THAI[:9]])
    embed(inputs / "*").ok()
    write_lines(inputs / "b.txt", THAI)
    embed(inputs / "*").ok()
    assert check_ledger(store, 22)["tokens"]["unknown"] == 12
    assert "unknown   " not in embed(inputs / "*").ok().out
    assert check_ledger(store, 22)["tokens"]["unknown"] == 0
    write_lines(inputs / "c.txt", [f"x{n}" for n in range(100)])
    embed(inputs / "*").failed(3, "100 of 100 tokens are unknown")


def test_search_notes_a_query_that_the_model_cannot_read(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(6))
    embed(inputs / "*").ok()
    how = ("search", "--store", store, "-k", 1, "--query", "the dog")
    assert run(*how).err == ""
    said = run(*how, "--query", "คน the")
    assert (said.status, said.err) == (0, "")
    said = run(*how, "--query", "คน", "--query", "😀 😀 the")
    note = "note: the model does not know most words of the query 'คน' and of 1 other query"
    assert (said.status, note in said.err) == (0, True)
