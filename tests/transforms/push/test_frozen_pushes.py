"""A push that is frozen inside a batch, and wakes when another one has pushed, leaves no wrong row
that stays.
"""

import pytest
from helpers.killed_push import Moment, frozen, wake
from helpers.pushes import Kept, check, expected, files_of, held_by

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.push import open_target, push

FIRST = {f"i{n}": f"first {n}" for n in range(60)}
CHANGED = FIRST | {f"i{n}": f"second {n}" for n in range(30)}
ADDED = FIRST | {f"i{n}": f"new {n}" for n in range(100, 130)}


@pytest.mark.parametrize(
    ("shared", "second", "batch"),
    [
        ("lance", CHANGED, 1),
        pytest.param("lance", ADDED, 2, marks=pytest.mark.slow),
        pytest.param("qdrant", CHANGED, 2, marks=pytest.mark.slow),
        pytest.param("qdrant", ADDED, 1, marks=pytest.mark.slow),
    ],
    indirect=["shared"],
)
def test_a_frozen_push_writes_nothing_when_it_wakes(
    store: Kept, shared: str, second: dict[str, str], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit_without_index(files_of(FIRST, 10))
    _push(store, shared)
    store.commit_without_index(files_of(second, 10))
    with frozen(store.root, shared, Moment(batch, batches=True)) as first:
        with pytest.raises(SentenceBeamError, match="another push into it is under way"):
            _push(store, shared)
        store.commit_without_index(files_of(FIRST, 10))
        monkeypatch.setattr("sentence_beam.transforms.push.turn.STALE_SECONDS", 0)
        _push(store, shared)
        check(held_by(shared), expected(files_of(FIRST)))
        assert wake(first) == 1
    _push(store, shared)
    check(held_by(shared), expected(files_of(FIRST)))


def test_a_push_that_is_frozen_in_postgres_keeps_its_turn(
    store: Kept, pgvector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.push.postgres.WAIT_SECONDS", 0.1)
    to = f"{pgvector}#frozen"
    _push(store, to)
    store.commit_without_index(files_of(CHANGED, 10))
    with frozen(store.root, to, Moment(2, batches=True)) as first:
        store.commit_without_index(files_of(ADDED, 10))
        with pytest.raises(SentenceBeamError, match="another push into it is under way"):
            _push(store, to)
        assert wake(first) == 0
    check(held_by(to), expected(files_of(CHANGED)))
    _push(store, to)
    check(held_by(to), expected(files_of(ADDED)))


def _push(store: Kept, to: str) -> None:
    with open_target(to) as target:
        push(lambda: store.manifest, target)
