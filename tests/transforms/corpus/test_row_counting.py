"""How many rows a span is said to have before it is read."""

import json
import random
import re
from pathlib import Path

import pytest
from helpers.corpora import PACK, sentences

from sentence_beam.transforms.corpus import limit_spans, match_inputs, plan_file
from sentence_beam.transforms.corpus.row_counting import count_rows, estimate_rows

TEXTS = [text if number % 7 else f"{text}\n" * 5 for number, text in enumerate(sentences(3000))]
LINES = {
    ".txt": [" ".join(text.split()) for text in TEXTS],
    ".jsonl": [
        json.dumps({"url": "https://example.org/" + 40 * "a", "text": text}) for text in TEXTS
    ],
    ".csv": ["id,text", *(f'{number},"{text}"' for number, text in enumerate(TEXTS))],
}


def about(path: Path, unit_tokens: int = 4000, limit: int | None = None) -> tuple[float, int]:
    """The rows that the spans of a file are said to have, and those that they have."""
    (file,) = match_inputs(str(path))
    spans = plan_file(file, "text", unit_tokens)
    spans = spans if limit is None else limit_spans(spans, limit)
    said = [estimate_rows(span) for span in spans]
    assert None not in said
    return sum(filter(None, said)), sum(count_rows(span) for span in spans)


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("end", ["\n", ""])
def test_rows_of_a_file_that_is_looked_at_as_a_whole(
    tmp_path: Path, kind: str, packed: str, end: str
) -> None:
    path = tmp_path / f"a{kind}{packed}"
    path.write_bytes(PACK[packed](("\n".join(LINES[kind]) + end).encode()))
    for limit in (None, 10):
        said, rows = about(path, 10**6, limit)
        assert said == rows == (limit or len(TEXTS))
    said, rows = about(path)
    assert said == pytest.approx(rows, rel=0.02)


@pytest.mark.parametrize("packed", ["", ".gz"])  # others take in a megabyte at once
@pytest.mark.parametrize("kind", LINES)
def test_rows_of_a_file_whose_head_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, packed: str
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.corpus.row_counting.HEAD", 1 << 18)
    rng = random.Random(0)
    lines = [re.sub(r"\bs(?=\d)", "s" + rng.randbytes(90).hex(), line) for line in LINES[kind]]
    path = tmp_path / f"a{kind}{packed}"
    path.write_bytes(PACK[packed]("\n".join(lines).encode()))
    said, rows = about(path, 10**6)
    assert sum(map(len, lines)) > (1 << 18)
    assert said == pytest.approx(rows, rel=0.1)


def test_a_row_longer_than_the_head_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.corpus.row_counting.HEAD", 100)
    path = tmp_path / "a.txt"
    path.write_text("a" * 1000)
    (file,) = match_inputs(str(path))
    assert [estimate_rows(span) for span in plan_file(file, "text", 10**6)] == [0]
