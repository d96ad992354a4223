"""Questions put together: who waits for whom, and what happens where there are too many.

Covers transforms/serve/guard.py.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.plain_values import to_json_value
from sentence_beam.transforms.serve import question_batches
from sentence_beam.transforms.serve.followed import Answer
from sentence_beam.transforms.serve.guard import parse_host
from sentence_beam.transforms.serve.question import (
    MOST_CHARACTERS,
    MOST_HITS,
    Question,
    RefusedError,
    parse_question,
)
from sentence_beam.transforms.serve.question_batches import Batches


def asked(text: str) -> Question:
    """A question about a text."""
    return Question(text, None, 10, "")


@contextlib.asynccontextmanager
async def running(
    answers: Callable[[Sequence[Question]], list[Answer]], told: list[int]
) -> AsyncIterator[Batches]:
    """Batches that are answered; `told` gets their sizes."""
    found = Batches(answers, told.append)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def own(questions: Sequence[Question]) -> list[Answer]:
    """Of each question an answer that tells it, or the error that it names."""
    return [OptionError(q.text) if q.text == "bad" else [{"id": q.text}] for q in questions]


def test_questions_at_about_the_same_time_are_one_batch_and_each_has_its_own_answer() -> None:
    async def ask() -> tuple[list[Any], list[int]]:
        told: list[int] = []
        async with running(own, told) as found:
            texts = ["a", "bad", "b"]
            return await asyncio.gather(
                *(found.ask(asked(text)) for text in texts), return_exceptions=True
            ), told

    (first, bad, last), told = asyncio.run(ask())
    assert (first, last) == ([{"id": "a"}], [{"id": "b"}])
    assert isinstance(bad, OptionError)
    assert told == [3]


def test_a_batch_is_no_larger_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_batches, "MOST_TOGETHER", 4)

    async def ask() -> list[int]:
        told: list[int] = []
        async with running(own, told) as found:
            await asyncio.gather(*(found.ask(asked(str(n))) for n in range(10)))
        return told

    assert asyncio.run(ask()) == [4, 4, 2]


def test_where_too_many_wait_or_it_takes_too_long_a_question_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_batches, "MOST_WAITING", 2)
    monkeypatch.setattr(question_batches, "LONGEST", 0.05)

    async def ask() -> list[Any]:
        found = Batches(own)  # which nobody answers
        return await asyncio.gather(
            *(found.ask(asked(text)) for text in "abc"), return_exceptions=True
        )

    errors = asyncio.run(ask())
    assert [(type(error), error.status) for error in errors] == [(RefusedError, 503)] * 3
    assert ["wait already" in str(error) for error in errors] == [False, False, True]


@settings(max_examples=examples(30))
@given(
    st.lists(
        st.tuples(st.sampled_from(["q", "id", "k", "where", "x"]), st.text(max_size=20)), max_size=5
    )
)
def test_parameters_are_a_question_within_bounds_or_refused(pairs: list[tuple[str, str]]) -> None:
    try:
        found = parse_question(pairs, "q")
    except RefusedError:
        return
    assert found.text
    assert found.text.strip()
    assert found.id is None
    assert 1 <= found.k <= MOST_HITS
    assert len(found.text) <= MOST_CHARACTERS


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.binary() | st.dates() | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=examples(30))
@given(VALUES)
def test_every_value_is_json(value: object) -> None:
    json.loads(json.dumps(to_json_value(value), allow_nan=False))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8000", "localhost"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("", ""),
    ]
    + [("127.0.0.1:1", "127.0.0.1"), ("localhost.evil.example", "localhost.evil.example")],
)
def test_the_name_in_a_host(header: str, name: str) -> None:
    assert parse_host(header) == name
