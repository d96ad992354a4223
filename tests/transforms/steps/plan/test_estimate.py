"""The rules of `plan` on made-up plans: sizes, rows that nobody has counted, time, index.

Covers transforms/steps/plan/pace.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_lines
from helpers.plans import job_of
from helpers.snapshots import SPACE
from helpers.units import make_unit

from sentence_beam.transforms.corpus import InputFile, Span, match_inputs
from sentence_beam.transforms.corpus.beside import Beside
from sentence_beam.transforms.corpus.collection_rows import plan_reading
from sentence_beam.transforms.steps.options.resolve import Resolved
from sentence_beam.transforms.steps.plan.estimate import Estimate, Prediction, estimate
from sentence_beam.transforms.steps.plan.look import Looked, count_in_buckets
from sentence_beam.transforms.steps.plan.pace import (
    Pace,
    draw_samples,
    estimate_planned_tokens,
    split_texts,
)
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows, make_row
from sentence_beam.transforms.steps.plan.size_estimate import (
    estimate_index_size,
    estimate_shard_bytes,
    name_index,
)
from sentence_beam.transforms.store.index_entries import IndexRequest

PACE = Pace(loading=2.0, seconds=4.0, rows=10, expected=100.0, real=80, pieces=25)


def file_of(name: str) -> InputFile:
    """An input file of 1,000 bytes."""
    return InputFile(f"/in/{name}", name, "text", "", 1000, "sum", "v")


def span_of(rows: int | None, tokens: int, name: str = "a.txt") -> Span:
    """The one span of a file."""
    return Span(file_of(name), 0, 0, None, rows=rows, tokens=tokens)


def estimated(*spans: Span, pace: Pace | None = PACE, is_cut: bool = False) -> Estimate:
    """The estimate of a run that embeds spans of files of their own."""
    planned = make_planned_rows([OpenedFile(span.file, (span,)).row() for span in spans])
    return estimate(Looked.from_files(planned, Beside(), spans), pace, is_cut)


def predicted(plan: Estimate, pace: Pace | None = None, **values: Any) -> Prediction:
    """The prediction of a run into a store that does not exist."""
    index = values.pop("index", None)
    return Prediction(Resolved(job_of("/nowhere", **values), index, None), plan, pace)


def test_counted_rows_are_exact_and_need_no_pace() -> None:
    found = estimated(span_of(7, 70), span_of(5, 40, "b.txt"), pace=None)
    assert (found.rows, found.exact_rows, found.counts.tokens) == (12, True, 110)
    assert isinstance(found.rows, int), "a count, not an estimate, in --json"
    assert (found.counts.files, found.counts.units, found.counts.input_bytes) == (2, 2, 2000)


def test_rows_that_nobody_has_counted_follow_from_measured_rows() -> None:
    found = estimated(span_of(7, 70), span_of(None, 40, "b.txt"))
    assert not found.exact_rows
    assert found.rows == 7 + 40 / 10, "ten estimated tokens a row were measured"


def test_pieces_are_estimated_only_if_documents_are_cut() -> None:
    assert estimated(span_of(7, 70)).pieces is None
    cut = estimated(span_of(7, 70), is_cut=True)
    assert cut.vectors == cut.pieces == 70 / 4, "four estimated tokens a piece were measured"


def test_carried_and_bad_files_are_told_apart() -> None:
    bad = {"carried": False, "spans": [], "bad": "bad.txt: not UTF-8"}
    planned = make_planned_rows(
        [
            make_row(file_of("carried.txt")) | {"carried": True, "units": 1, "rows": 2},
            make_row(file_of("empty.txt")) | {"carried": True},
            OpenedFile(file_of("opened.txt")).row(),
            make_row(file_of("bad.txt")) | bad,
        ]
    )
    found = Looked.from_files(planned, Beside({"/in": {".md": 3}}), [])
    assert (found.files, found.carried_files, found.unchanged_files) == (4, 2, 2)
    assert (found.carried_units, found.carried_rows) == (1, 2)
    assert found.bad == {"bad.txt": "bad.txt: not UTF-8"}
    assert found.beside == {".md": 3}


def test_by_content_units_are_buckets() -> None:
    spans = [span_of(100, 10_000), span_of(100, 10_000, "b.txt")]
    job = job_of("/nowhere", partition="content")
    found = count_in_buckets(Looked.from_files(make_planned_rows([]), Beside(), spans), None, job)
    assert found.units == 16, "as many as hold 2,000 tokens, to the next power of two"


def test_more_rows_add_up_to_a_pace() -> None:
    both = PACE.after(Pace(0.0, 1.0, 10, 100.0, 120, 25, 0.5, 0.5))
    assert (both.loading, both.seconds, both.rows) == (2.0, 5.0, 20)
    assert (both.real_share, both.tokens_per_second) == (1.0, 40.0)


def test_time_is_loading_and_embedding() -> None:
    found = predicted(estimated(span_of(7, 1000)), PACE)
    assert found.real_tokens == 800
    assert found.seconds == 2.0 + 800 / 20
    assert predicted(estimated(span_of(7, 1000), pace=None)).seconds == 0


def test_the_slower_of_tokenizer_and_model_is_the_limit() -> None:
    assert replace(PACE, tokenising=3.0, computing=1.0).slower == "tokenizer"
    assert replace(PACE, tokenising=1.0, computing=3.0).slower == "model"


def test_measured_texts_have_their_share_of_the_tokens_of_a_span() -> None:
    assert estimate_planned_tokens(span_of(None, 600), ["ab", "cd"], rows=30.0) == 40
    alone = estimate_planned_tokens(span_of(None, 600), ["ab" * 50, "cd"], rows=None)
    assert alone == estimate_planned_tokens(span_of(None, 9), ["ab" * 50, "cd"], rows=0)


def test_texts_are_taken_in_lists_of_about_so_many_tokens() -> None:
    texts = ["a" * 40, "b" * 40, "c" * 4000, "d" * 40]
    unit = make_unit(SPACE, texts).rows
    lists = list(split_texts(iter([unit, unit]), 30))
    assert [text for some in lists for text in some] == texts * 2
    assert [texts[2]] in lists, "a text beyond the tokens is a list of its own"
    assert lists[0] == texts[:2]


@pytest.fixture
def uneven(tmp_path: Path) -> list[Span]:
    """The spans of nine files of forty rows: short texts in the first eight, long ones in the
    last.
    """
    for number in range(9):
        text = f"text {number} "
        write_lines(tmp_path / f"{number}.txt", [text * (20 if number == 8 else 1)] * 40)
    columns = job_of("/nowhere").columns
    files = match_inputs(str(tmp_path / "*.txt"), "auto")
    return [span for file in files for span in plan_reading(file, columns)]


def test_places_all_over_the_collection_are_measured(uneven: list[Span]) -> None:
    job = job_of("/nowhere", id_column=None)
    seen = list(draw_samples(job, uneven, 0))
    assert [len(texts) for _, texts in seen] == [1] * 360
    lengths = sorted(len(texts[0]) for _, texts in seen[:9])
    assert lengths[8] > 5 * lengths[7], "one of the first nine texts is of the file of long ones"


def test_shards_hold_vectors_and_compressed_text() -> None:
    plan = estimated(span_of(1000, 100_000), pace=None)
    bare = estimate_shard_bytes(predicted(plan, keep_text=False))
    assert bare == 1000 * (4 * SPACE.dim + 40)
    assert estimate_shard_bytes(predicted(plan, keep_text=True)) > bare + 100_000


def test_an_index_with_too_few_rows_gives_way_to_auto() -> None:
    request = IndexRequest("IVF256,Flat", "cosine")
    few = predicted(estimated(span_of(100, 1000), pace=None), index=request)
    assert name_index(few).startswith("auto: IVF256,Flat has to be trained on 256 rows or more")
    assert estimate_index_size(few) is None
    many = predicted(estimated(span_of(50_000, 500_000), pace=None), index=request)
    assert name_index(many) == "IVF256,Flat"
    size = estimate_index_size(many)
    assert size is not None
    assert (size["factory"], size["rows"]) == ("IVF256,Flat", 50_000)
    guessed = predicted(estimated(span_of(None, 1000)), PACE, index=request)
    assert name_index(guessed) == "IVF256,Flat", "the rows are not known yet"
    assert name_index(predicted(few.plan)) == "none"
