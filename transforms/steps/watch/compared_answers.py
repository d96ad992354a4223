"""Compare the answers of two snapshots to the watched queries."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.steps.watch.ask import Asked, is_in_sample
from sentence_beam.transforms.steps.watch.causes import Reason, reasons
from sentence_beam.transforms.steps.watch.fates import Fates
from sentence_beam.transforms.steps.watch.ranked_lists import (
    number_copies,
    overlap,
    rank_biased_overlap,
)
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.answer_figures import AnswerFigures, ChangedQuery
from sentence_beam.transforms.store.watched import Answer, Answers, WatchedQueries

Key = Callable[[Answer], object]  # by which a row is the same on both sides
Places = tuple[list[int], list[int]]  # of lost answers before, and of gained ones after


@dataclass(frozen=True)
class ComparedQuery:
    """A query's answers in two snapshots, and for each lost one the reason.

    `lost` has the places of lost answers among those before, `gained` the places of gained ones
    among those after.
    """

    text: str
    before: Sequence[Answer]
    after: Sequence[Answer]
    overlap: float
    rbo: float
    first_changed: bool
    lost: dict[int, Reason]
    gained: Sequence[int]


@dataclass(frozen=True)
class ComparedAnswers:
    """All watched queries in two snapshots, with the figures over them."""

    queries: Sequence[ComparedQuery]
    figures: AnswerFigures


def compare(
    snapshots: tuple[Manifest, Manifest],
    answers: tuple[Answers, Asked],
    watched: WatchedQueries,
    vectors: np.ndarray,
    k: int,
) -> ComparedAnswers:
    """Compare the answers of the last snapshot with those of the coming one.

    `vectors` are the queries' float32 [q, dim] in the coming one.
    """
    answered = answers[1]
    before = sampled(answers[0], answered.rows)
    fates = Fates(*snapshots, vectors)
    places = find_changed_places(fates.key, before, answered.answers)
    fates.read(
        [old[place] for old, (lost, _) in zip(before, places, strict=True) for place in lost],
        [
            new[place]
            for new, (_, got) in zip(answered.answers, places, strict=True)
            for place in got
        ],
        [new[-1] for new, (lost, _) in zip(answered.answers, places, strict=True) if lost and new],
    )
    queries = [
        _compare_query(
            fates, number, text, (before[number], answered.answers[number]), places[number]
        )
        for number, text in enumerate(watched.texts)
    ]
    figures = replace(
        count_figures(queries, answered, k),
        score_before=_mean_score([query.before for query in queries]),
        score=_mean_score([query.after for query in queries]),
        by_ids=fates.by_ids,
    )
    return ComparedAnswers(queries, figures)


def sampled(answers: Answers, part: float) -> Answers:
    """Return the answers from units in the sample that is searched, a part of all."""
    if part >= 1:
        return answers
    return [
        [answer for answer in some if is_in_sample(layout.unit(answer.shard), part)]
        for some in answers
    ]


def find_changed_places(key: Key, before: Answers, after: Answers) -> list[Places]:
    """Return for each query the places of lost answers before, and of gained answers after."""
    return [_find_changed(key, old, new) for old, new in zip(before, after, strict=True)]


def _find_changed(key: Key, before: Sequence[Answer], after: Sequence[Answer]) -> Places:
    old = number_copies([key(answer) for answer in before])
    new = number_copies([key(answer) for answer in after])
    kept = set(old) & set(new)
    lost = [place for place, key in enumerate(old) if key not in kept]
    gained = [place for place, key in enumerate(new) if key not in kept]
    return lost, gained


def _compare_query(
    fates: Fates,
    number: int,
    text: str,
    answers: tuple[Sequence[Answer], Sequence[Answer]],
    places: Places,
) -> ComparedQuery:
    lost, gained = places
    reasons: dict[int, Reason] = _find_reasons(fates, number, answers, places) if lost else {}
    return make_compared_query(fates.key, text, answers, reasons, gained)


def make_compared_query(
    key: Key,
    text: str,
    answers: tuple[Sequence[Answer], Sequence[Answer]],
    reasons: dict[int, Reason],
    gained: Sequence[int],
) -> ComparedQuery:
    """Return a query with its answers before and after, and what they share by their keys."""
    before, after = answers
    old_keys = [key(answer) for answer in before]
    new_keys = [key(answer) for answer in after]
    return ComparedQuery(
        text=text,
        before=before,
        after=after,
        overlap=overlap(old_keys, new_keys),
        rbo=rank_biased_overlap(old_keys, new_keys),
        first_changed=old_keys[:1] != new_keys[:1],
        lost=reasons,
        gained=gained,
    )


def _find_reasons(
    fates: Fates, number: int, answers: tuple[Sequence[Answer], Sequence[Answer]], places: Places
) -> dict[int, Reason]:
    """Return the reasons of a query's lost answers by their places; ties have none."""
    before, after = answers
    lost, gained = places
    texts = {answer.text_hash for answer in before}
    least = fates.exact(number, after[-1]) if after else -np.inf
    causes_found = reasons(
        fates.lost(number, [before[place] for place in lost]),
        fates.gained(number, [after[place] for place in gained], texts, after),
        least,
    )
    return {
        place: reason
        for place, reason in zip(lost, causes_found, strict=True)
        if reason is not None
    }


def count_figures(queries: Sequence[ComparedQuery], answered: Asked, k: int) -> AnswerFigures:
    """Return the figures over all queries, without scores."""
    reasons_of_lost = [reason for query in queries for reason in query.lost.values()]
    causes = Counter(reason.cause for reason in reasons_of_lost)
    return AnswerFigures(
        queries=len(queries),
        k=k,
        answers=sum(len(query.before) for query in queries),
        by_growth=sum(reason.by_growth for reason in reasons_of_lost),
        indexed=answered.indexed,
        rows=answered.rows,
        causes=dict(causes.most_common()),
        examples={cause: _choose_example(queries, cause) for cause in causes},
        overlap=_mean([query.overlap for query in queries]),
        rbo=_mean([query.rbo for query in queries]),
        first_changed=_mean([float(query.first_changed) for query in queries]),
    )


def _choose_example(queries: Sequence[ComparedQuery], cause: str) -> ChangedQuery:
    """Return the query that lost most answers by a cause; a changed first hit comes first."""

    def weight(query: ComparedQuery) -> tuple[bool, int]:
        of_cause = sum(reason.cause == cause for reason in query.lost.values())
        return of_cause > 0 and query.first_changed, of_cause

    chosen = max(queries, key=weight)
    return ChangedQuery(chosen.text, _name_first(chosen.before), _name_first(chosen.after))


def _name_first(answers: Sequence[Answer]) -> str | None:
    return answers[0].id if answers else None


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 6) if values else 0.0


def _mean_score(answers: Sequence[Sequence[Answer]]) -> float | None:
    scores = [answer.score for answers_of_query in answers for answer in answers_of_query]
    return _mean(scores) if scores else None
