"""The samples that `diagnose` draws, and sources and figures that cannot be."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.corpora import sentences

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.evaluation.diagnostics import impact
from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import DiagnoseOptions
from sentence_beam.transforms.evaluation.diagnostics.diagnosis import diagnose
from sentence_beam.transforms.evaluation.diagnostics.drawn_samples import sample_files


def test_the_sample_is_the_same_whatever_the_order_of_files(tmp_path: Path) -> None:
    """If all rows are drawn, it also is the same however they lie in files."""
    texts = sentences(90)
    for name, part in (("all", texts), ("one", texts[50:]), ("two", texts[:50])):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in part)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    whole, one, two = (str(tmp_path / f"{name}.jsonl") for name in ("all", "one", "two"))
    drawn = sample_files([one, two], "auto", Syntax(), None, 20)
    assert drawn == sample_files([two, one], "auto", Syntax(), None, 20)
    assert (drawn.total, len(set(drawn.texts or []))) == (90, 20)
    for patterns in ([whole], [two, one]):
        every = sample_files(patterns, "auto", Syntax(), None, 100)
        assert sorted(every.texts or []) == sorted(texts)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input": "a.txt", "store": "s"}, "say one of store, input and task"),
        ({"input": "a.txt", "figures": "heads,tails"}, "figure tails is not known; allowed: cosines"),
        ({"input": "a.txt", "figures": "auc"}, "figure auc is of pairs; give them by task "),
        ({"input": "a.txt", "figures": "impact"}, "give it by sentence"),
        ({"input": "a.txt", "snapshot": "1"}, "snapshot is for store; leave it out"),
        ({"input": "blank.txt"}, "holds no row with text"),
        ({"tasks": "nli:a=b"}, "NAME=PATH"),
        ({"tasks": "qa:x=a.txt"}, "needs label, sentence1, sentence2, or two columns"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a dog\na cat\n")
    Path("blank.txt").write_text("\n \n")
    with pytest.raises(OptionError) as caught:
        diagnose(DiagnoseOptions(**given))  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_no_sentence_of_a_usable_length() -> None:
    words = impact.WordCounts(np.ones(3), np.ones(3), "none")
    (row,) = impact.influence_figures(impact.Influences([], [], 2), words)
    assert (row["value"], row["n"], row["spearman"]) == (None, 0, None)
