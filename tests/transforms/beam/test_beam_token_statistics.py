"""Token statistics of a corpus, by list in and list out: the whole fit and each of its parts.

Covers transforms/steps/fit/corpus_statistics.py.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from helpers import eager
from helpers.corpora import write_lines, write_parquet
from helpers.tiny_models import tiny_tokenizer

from sentence_beam.transforms.beam.fit import CountSpanFn, FitTokenStatistics
from sentence_beam.transforms.beam.graph import MergeAll
from sentence_beam.transforms.corpus import InputFile, match_inputs
from sentence_beam.transforms.encoder.load import load_statistics
from sentence_beam.transforms.pooling import TokenStatistics
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer
from sentence_beam.transforms.steps.fit.corpus_statistics import Counted, CountJob, plan_spans
from sentence_beam.transforms.steps.fit.fit_result import read_result
from sentence_beam.transforms.store.records import Problem

pytestmark = pytest.mark.usefixtures("plain_beam")

TEXTS = ["a man is riding a horse", "the dog", "  ", "dog dog cat", "a cat"]


@pytest.fixture
def job(model: Path, tmp_path: Path) -> CountJob:
    tokenizer = hash_tokenizer(resolve_model(str(model)))
    return CountJob(
        "run1", "token-counts", str(model), None, tokenizer, "text", str(tmp_path / "fit")
    )


@pytest.fixture
def files(tmp_path: Path) -> list[InputFile]:
    """The texts in two files."""
    write_lines(tmp_path / "in" / "a.txt", TEXTS[:3])
    write_parquet(tmp_path / "in" / "b.parquet", TEXTS[3:], row_group_size=1)
    return list(match_inputs(f"{tmp_path}/in/*", "auto"))


def expected(method: str) -> list[int]:
    """Occurrences of each token, or texts that hold it, by the tokenizer itself."""
    tokenizer, counted = tiny_tokenizer("bert"), Counter[int]()
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        counted.update(set(ids) if method == "tfidf" else ids)
    return [counted[token] for token in range(len(tokenizer))]


@pytest.mark.parametrize("method", ["token-counts", "tfidf"])
def test_files_become_exact_counts(job: CountJob, files: list[InputFile], method: str) -> None:
    (result,) = eager.run(FitTokenStatistics(replace(job, method=method)), files)
    fitted = load_statistics(job.output)
    assert fitted.counts.tolist() == expected(method)
    assert (result.exit_code, result.figures["documents"], result.figures["rejected"]) == (0, 4, 1)
    assert (result.figures["digest"], result.figures["tokens"]) == (
        fitted.digest,
        sum(expected(method)),
    )
    assert read_result(job.output) == result


def test_a_file_that_cannot_be_read_fails_the_fit(job: CountJob, files: list[InputFile]) -> None:
    Path(files[1].path).write_bytes(b"PAR1")
    (result,) = eager.run(FitTokenStatistics(job), files)
    assert result.exit_code == 1
    assert files[1].path in result.message
    assert [path.name for path in Path(job.output).glob("*.json")] == ["fit.json"]


def test_no_text_at_all_is_the_users_mistake(job: CountJob) -> None:
    (result,) = eager.run(FitTokenStatistics(job), [])
    assert result.exit_code == 2
    assert "--text-column" in result.message


def test_each_file_becomes_its_spans_or_a_problem(files: list[InputFile]) -> None:
    found = eager.run(beam.FlatMap(plan_spans, "words"), files)
    assert [item.file.path for item in found if not isinstance(item, Problem)] == [files[0].path]
    assert ["words" in item.message for item in found if isinstance(item, Problem)] == [True]


def test_each_span_becomes_counts_or_the_problem_it_is(
    job: CountJob, files: list[InputFile]
) -> None:
    lost = Problem("lost", 1)
    spans = eager.run(beam.FlatMap(plan_spans, "text"), files)
    found = eager.run(beam.ParDo(CountSpanFn(job)), [*spans, lost])
    assert [item.problem for item in found if item.problem] == [lost]
    counted = [item for item in found if item.statistics]
    assert sum(item.rejected for item in counted) == 1
    assert np.sum([item.statistics.counts for item in counted], axis=0).tolist() == expected(
        "token-counts"
    )


def test_another_tokenizer_on_a_worker_is_a_problem(job: CountJob, files: list[InputFile]) -> None:
    spans = eager.run(beam.FlatMap(plan_spans, "text"), files)
    found = eager.run(beam.ParDo(CountSpanFn(replace(job, tokenizer="another"))), spans)
    assert {item.problem.exit_code for item in found if item.problem} == {2}
    assert all(item.statistics is None for item in found)


def test_counts_are_added_and_the_first_problem_by_name_stays() -> None:
    parts = [
        Counted(TokenStatistics("tfidf", "t", i, np.array([i, 1])), rejected=i) for i in range(1, 4)
    ]
    (total,) = eager.run(beam.CombineGlobally(MergeAll(Counted())), parts)
    assert (total.statistics.documents, total.statistics.counts.tolist(), total.rejected) == (
        6,
        [6, 3],
        6,
    )
    (failed,) = eager.run(
        beam.CombineGlobally(MergeAll(Counted())),
        [*parts, *(Counted(problem=Problem(m, 1)) for m in "ba")],
    )
    assert failed.problem == Problem("a", 1)
    assert eager.run(beam.CombineGlobally(MergeAll(Counted())), []) == [Counted()]
