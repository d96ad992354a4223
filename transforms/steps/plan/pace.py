"""The speed at which this machine embeds, measured for a few seconds on rows of the plan."""

import functools
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.corpus import Span, UnitRows, read_span
from sentence_beam.transforms.corpus.row_counting import estimate_rows
from sentence_beam.transforms.corpus.spans import estimate_tokens
from sentence_beam.transforms.steps.embed.cutting import list_piece_texts
from sentence_beam.transforms.steps.options.job import EmbedJob

MEASURED_SECONDS = 10.0
MEASURED_BATCHES = 8  # embedded at a time: with fewer, some cores wait at the end
WARM_UP_TEXTS = 32


@dataclass(frozen=True)
class Pace:
    """The speed of a few seconds of embedding, with seconds to load the model and to embed.

    `rows` were embedded, as `pieces` texts: one a row, unless documents are cut. `expected` are
    the tokens that the plan estimates for those rows, `real` those that the tokenizer made.
    `tokenising` are the seconds of the tokenizer alone, `computing` those of the model.
    """

    loading: float
    seconds: float = 0.0
    rows: int = 0
    expected: float = 0.0
    real: int = 0
    pieces: int = 0
    tokenising: float = 0.0
    computing: float = 0.0

    def after(self, more: "Pace") -> "Pace":
        """Return the pace after more rows were embedded."""
        return Pace(*(sum(pair) for pair in zip(astuple(self), astuple(more), strict=True)))

    @property
    def real_share(self) -> float:
        """Real tokens over estimated tokens."""
        return self.real / self.expected

    @property
    def tokens_per_row(self) -> float:
        """Estimated tokens over rows."""
        return self.expected / self.rows

    @property
    def tokens_per_piece(self) -> float:
        """Estimated tokens over pieces."""
        return self.expected / self.pieces

    @property
    def tokens_per_second(self) -> float:
        """Real tokens over seconds of embedding."""
        return self.real / max(self.seconds, 1e-9)

    @property
    def host_tokens_s(self) -> float:
        """Real tokens over seconds of the tokenizer."""
        return self.real / max(self.tokenising, 1e-9)

    @property
    def device_tokens_s(self) -> float:
        """Real tokens over seconds of the model."""
        return self.real / max(self.computing, 1e-9)

    @property
    def slower(self) -> str:
        """The slower of the two: "tokenizer" or "model"."""
        return "tokenizer" if self.host_tokens_s < self.device_tokens_s else "model"

    def estimate_time(self, expected: float) -> float:
        """Return the seconds to load the model and embed so many estimated tokens."""
        return self.loading + expected * self.real_share / self.tokens_per_second


def measure(job: EmbedJob, spans: list[Span]) -> Pace | None:
    """Embed rows from all over the spans for a few seconds, after a warm-up, and return the pace.

    Returns None if the spans have no good row.
    """
    from sentence_beam.transforms.steps.embed.load_encoder import load_encoder

    began = time.monotonic()
    with progress.stage(progress.LOADING):
        encoder = load_encoder(job)
    pace = Pace(time.monotonic() - began)
    rows_of = functools.cache(estimate_rows)
    with progress.stage("measuring how fast this machine embeds", things="rows"):
        for span, texts in draw_samples(job, spans, MEASURED_BATCHES * encoder.tokens_per_batch):
            pieces = list_piece_texts(texts, job)
            if not pace.rows:
                encoder.encode(pieces[:WARM_UP_TEXTS])
            began = time.monotonic()
            tokenized = encoder.tokenize(pieces)
            tokenising = time.monotonic() - began
            stats = encoder.embed(tokenized).stats
            computing = time.monotonic() - began - tokenising
            expected = estimate_planned_tokens(span, texts, rows_of(span))
            # on a CPU both take the same cores; a GPU computes beside the tokenizer
            is_cpu = encoder.device.type == "cpu"
            seconds = tokenising + computing if is_cpu else max(tokenising, computing)
            counts = len(texts), expected, stats.real, len(pieces)
            pace = pace.after(Pace(0.0, seconds, *counts, tokenising, computing))
            progress.step(len(texts))
            if pace.seconds > MEASURED_SECONDS:
                break
    return pace if pace.rows else None


def estimate_planned_tokens(span: Span, texts: list[str], rows: float | None) -> float:
    """Return the tokens that the plan estimates for texts of a span, which has about so many rows.

    Without a number of rows (None or 0) they are estimated from the bytes of the texts.
    """
    if rows:
        return span.tokens * len(texts) / rows
    return estimate_tokens(sum(len(text.encode()) for text in texts), len(texts))


def draw_samples(job: EmbedJob, spans: list[Span], tokens: int) -> Iterator[tuple[Span, list[str]]]:
    """Yield lists of texts of about so many tokens, each with its span, until all are read.

    The spans take turns, in random order: texts differ from file to file, and files often lie in
    order of their content.
    """
    order = random.Random(0).sample(spans, len(spans))
    waiting = deque(
        (span, split_texts(read_span(span, job.columns, job.run.unit_tokens), tokens))
        for span in order
    )
    while waiting:
        span, lists = waiting.popleft()
        texts = next(lists, None)
        if texts is not None:
            yield span, texts
            waiting.append((span, lists))


def split_texts(units: Iterator[UnitRows], tokens: int) -> Iterator[list[str]]:
    """Yield the texts of units in lists of at most so many estimated tokens, at least one text."""
    for unit in units:
        ends = np.cumsum([estimate_tokens(len(text.encode()), 1) for text in unit.texts])
        start = 0
        before = 0  # tokens of the texts before `start`
        while start < len(ends):
            stop = int(np.searchsorted(ends, tokens + before, side="right"))
            stop = max(stop, start + 1)
            yield unit.texts[start:stop]
            start = stop
            before = int(ends[stop - 1])
