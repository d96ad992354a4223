"""Options of `fit`: which method takes which, and which folders it may write."""

from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_lines

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.fit.fit_result import RESULT, check_output
from sentence_beam.transforms.steps.fit.jobs import (
    counts_tokens,
    list_corpus_files,
    parse_calibration_method,
)
from sentence_beam.transforms.steps.options.index_options import FitOptions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "pca"}, "method pca is not known; allowed: standardize"),
        ({"method": "idf"}, "tfidf, token-counts (a corpus)"),
        ({"method": "whitening:x"}, "width=x"),
        ({"method": "whitening", "text_column": "t"}, "text_column has no meaning with method"),
        ({"method": "whitening", "input": "b"}, "input has no meaning"),
        ({"method": "tfidf", "store": "s"}, "store has no meaning"),
        ({"method": "tfidf", "sample": 9}, "sample has no meaning"),
        ({"method": "tfidf"}, "method tfidf counts the tokens of a corpus; name its files by"),
    ],
)
def test_a_method_refuses_what_it_has_no_use_for(given: dict[str, Any], said: str) -> None:
    options = FitOptions(output="fitted", **given)
    with pytest.raises(OptionError) as caught:
        _ = counts_tokens(options) or parse_calibration_method(options)
    assert said in str(caught.value)


def test_a_file_that_two_patterns_match_is_counted_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.txt", ["a dog"])
    patterns = (str(tmp_path / "*.txt"), str(tmp_path / "*"))
    options = FitOptions(method="tfidf", output="fitted", input=patterns)
    assert [file.path for file in list_corpus_files(options)] == [str(path)]


def test_only_a_new_folder_or_that_of_a_fit_is_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check_output(str(tmp_path / "empty"))
    check_output(str(tmp_path / "new"))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OptionError, match=r"holds notes.txt and was not made by fit"):
        check_output(str(tmp_path))
    with pytest.raises(OptionError, match=r"notes.txt is a file; name a folder"):
        check_output(str(tmp_path / "notes.txt"))
    (tmp_path / RESULT).write_text("{}")
    check_output(str(tmp_path))
