"""Texts in which a reader sees something and the model nothing, as pages and mails leave them."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sentence_beam as sb

SEEN = {"words": "plain words", "heart": "❤", "dots": "..."}
UNSEEN = {
    "zero width space": "\u200b",
    "joiners": "\u200b\u200d",
    "soft hyphen": "\u00ad",
    "control characters": "\x00\x01",
    "mark of byte order": "\ufeff",
    "marks of direction": "\u200e\u200f",
    "no break": "\u2060 \u00a0",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"partition": "content", "prompt": "query: "},
        {"chunks": "budget"},
        {"chunks": "late"},
        {"chunks": "budget:combine=mean"},
    ],
    ids=str,
)
def test_they_are_rejected_as_empty(
    plain_beam: None, tmp_path: Path, options: dict[str, Any]
) -> None:
    texts = {**SEEN, **UNSEEN}
    columns = {"id": list(texts), "text": list(texts.values())}
    where = {"store": str(tmp_path / "store"), "id_column": "id"}
    store = sb.embed(columns, max_rejects=1, **where, **options)
    assert sorted(store.dataset().to_table(["id"])["id"].to_pylist()) == sorted(SEEN)
    [path] = (tmp_path / "store/rejects").iterdir()
    rejected = pq.read_table(path, columns=["id", "reason"]).to_pylist()
    assert {row["id"]: row["reason"] for row in rejected} == dict.fromkeys(UNSEEN, "empty text")
