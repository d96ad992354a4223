"""Token statistics: exact sums, the same bytes whatever the split, and files that belong
together.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling import TokenStatistics
from sentence_beam.transforms.space.token_table import TABLE, TokenTable, read_table

TEXTS = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=12)


def _count(texts, method="tfidf", size=10, tokenizer="t"):
    ids = np.array([token for text in texts for token in text], dtype=np.int32)
    return TokenStatistics.count(method, tokenizer, ids, np.cumsum([0, *map(len, texts)]), size)


@given(TEXTS, st.data())
def test_any_split_in_any_order_gives_the_same_table(texts, data):
    for method in ("tfidf", "token-counts"):
        cut = data.draw(st.integers(0, len(texts)))
        parts = _count(texts[cut:], method) + _count(texts[:cut], method) + _count([], method)
        whole = _count(texts, method)
        assert parts.digest == whole.digest
        assert parts.documents == whole.documents == len(texts)
        assert np.array_equal(parts.counts, whole.counts)


@given(TEXTS)
def test_documents_count_a_token_once_and_occurrences_every_time(texts):
    held = [sum(token in text for text in texts) for token in range(10)]
    occurrences = [sum(text.count(token) for text in texts) for token in range(10)]
    assert _count(texts).counts.tolist() == held
    assert _count(texts, "token-counts").counts.tolist() == occurrences


def test_files_and_back(tmp_path):
    fitted = _count([[1, 2], [1, 3]])
    for name, data in fitted.to_files().items():
        (tmp_path / name).write_bytes(data)
    table = read_table(tmp_path)
    counts = (tmp_path / table.described["counts"]).read_bytes()
    loaded = TokenStatistics.from_files(table, counts)
    assert table.digest == loaded.digest == fitted.digest
    assert (loaded.documents, loaded.method, loaded.counts.tolist()) == (
        2,
        "tfidf",
        [0, 2, 1, 1, 0, 0, 0, 0, 0, 0],
    )
    assert [*fitted.to_files()][-1] == TABLE
    with pytest.raises(OptionError, match="not the file"):
        TokenStatistics.from_files(table, counts[:-1] + b"x")


@pytest.mark.parametrize("harm", ["gone", "cut", "other", "json", "format"])
def test_damaged_tables_are_refused(tmp_path, harm):
    for name, data in _count([[1]]).to_files().items():
        (tmp_path / name).write_bytes(data)
    counts = next(tmp_path.glob("*.safetensors"))
    if harm == "gone":
        (tmp_path / TABLE).unlink()
    if harm == "cut":
        counts.write_bytes(counts.read_bytes()[:-1])
    if harm == "other":
        counts.unlink()
    if harm == "json":
        (tmp_path / TABLE).write_text("{")
    if harm == "format":
        (tmp_path / TABLE).write_text(json.dumps({"format": "another"}))
    with pytest.raises(OptionError, match="fit|fetch") as caught:
        read_table(tmp_path)
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_together_is_not_added():
    for other in (
        _count([[1]], "token-counts"),
        _count([[1]], size=11),
        _count([[1]], tokenizer="u"),
    ):
        with pytest.raises(OptionError, match="cannot be added"):
            _count([[1]]) + other
    with pytest.raises(OptionError, match="tfidf, token-counts"):
        _count([[1]], "idf")
    with pytest.raises(OptionError, match="int64"):
        TokenStatistics("tfidf", "t", 1, np.zeros(3))


def test_the_digest_covers_everything():
    fitted = _count([[1, 2]])
    for key in ("method", "tokenizer", "documents", "vocabulary", "sha256"):
        described = {
            **TokenTable({**json.loads(fitted.to_files()[TABLE])}).described,
            key: "changed",
        }
        assert TokenTable(described).digest != fitted.digest
