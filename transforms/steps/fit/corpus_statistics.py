"""Token statistics of a corpus: counts, which add up exactly however the corpus is split."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import (
    OptionError,
    SentenceBeamError,
    SpaceMismatchError,
    cite,
)
from sentence_beam.transforms.corpus import Columns, InputFile, Span, read_span
from sentence_beam.transforms.corpus.collection_rows import plan_reading
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer
from sentence_beam.transforms.steps.fit.fit_result import FitResult, write_result
from sentence_beam.transforms.store.records import Problem

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.tokenize import TextTokenizer
    from sentence_beam.transforms.pooling import TokenStatistics


@dataclass(frozen=True)
class CountJob:
    """A count of `tfidf` documents or `token-counts` occurrences, into a folder.

    `tokenizer` is the digest that the model's tokenizer must have wherever it is loaded.
    """

    run: str
    method: str
    model: str
    revision: str | None
    tokenizer: str
    text_column: str
    output: str


@dataclass(frozen=True)
class Counted:
    """Statistics of a part of the corpus (None: no row), its rejected rows, and a problem."""

    statistics: "TokenStatistics | None" = None
    rejected: int = 0
    problem: Problem | None = None

    def merge(self, other: "Counted") -> "Counted":
        """Return the counts of both parts; of two problems the one whose message sorts first."""
        counted_parts = [
            counted.statistics for counted in (self, other) if counted.statistics is not None
        ]
        statistics = reduce(operator.add, counted_parts) if counted_parts else None
        problems = [counted.problem for counted in (self, other) if counted.problem is not None]
        problem = min(problems, key=lambda each: each.message, default=None)
        return Counted(statistics, self.rejected + other.rejected, problem)


def plan_spans(file: InputFile, text_column: str) -> Iterator[Span | Problem]:
    """Yield the spans of a file, or the problem with it."""
    try:
        yield from plan_reading(file, Columns(text_column))
    except SentenceBeamError as error:
        yield Problem.from_error(error)


class SpanCounter:
    """The statistics of spans, with one tokenizer that is loaded when it is first needed."""

    def __init__(self, job: CountJob):
        self._job = job
        self._tokenizer: TextTokenizer | None = None

    def count(self, span: Span | Problem) -> Iterator[Counted]:
        """Yield the statistics of each of a span's units."""
        if isinstance(span, Problem):
            yield Counted(problem=span)
            return
        try:
            for unit in read_span(span, Columns(self._job.text_column), UNIT_TOKENS):
                with progress.stage("counting tokens", things="rows"):
                    counted = self._count_tokens(unit.texts)
                    progress.step(len(unit.texts))
                yield Counted(counted, len(unit.rejects))
        except SentenceBeamError as error:
            yield Counted(problem=Problem.from_error(error))

    def _count_tokens(self, texts: list[str]) -> "TokenStatistics":
        from sentence_beam.transforms.pooling import TokenStatistics

        tokenizer = self._load()
        tokenized = tokenizer(texts)
        plain = ~np.isin(tokenized.ids, tokenizer.special_ids)
        before = np.concatenate([[0], np.cumsum(plain)])
        ids = tokenized.ids[plain]
        offsets = before[tokenized.offsets]
        return TokenStatistics.count(
            self._job.method, self._job.tokenizer, ids, offsets, tokenizer.vocabulary
        )

    def _load(self) -> "TextTokenizer":
        if self._tokenizer is None:
            from sentence_beam.transforms.encoder.tokenize import TextTokenizer

            files = resolve_model(self._job.model, self._job.revision)
            if hash_tokenizer(files) != self._job.tokenizer:
                raise SpaceMismatchError(
                    f"{self._job.model} on this worker has another tokenizer; install the same"
                    " files"
                )
            self._tokenizer = TextTokenizer(files)
        return self._tokenizer


def write_statistics(counted: Counted, job: CountJob) -> FitResult:
    """Write the statistics, the file that makes them whole last, and how the run ended."""
    result = _make_result(counted, job)
    if result.exit_code == 0 and counted.statistics is not None:
        for name, data in counted.statistics.to_files().items():
            storage.overwrite(storage.join(job.output, name), data)
    write_result(job.output, result)
    return result


def _make_result(counted: Counted, job: CountJob) -> FitResult:
    statistics = counted.statistics
    if counted.problem is not None or statistics is None or statistics.documents == 0:
        empty = OptionError(
            f"{cite('input')} holds no row with text; check {cite('input')} and"
            f" {cite('text_column')}"
        )
        problem = counted.problem or Problem.from_error(empty)
        return FitResult(
            job.run, problem.exit_code, problem.message, {"rejected": counted.rejected}
        )
    figures = {
        "documents": statistics.documents,
        "rejected": counted.rejected,
        "tokens": int(statistics.counts.sum()),
        "distinct": int(np.count_nonzero(statistics.counts)),
        "digest": statistics.digest,
    }
    return FitResult(job.run, 0, "", figures)
