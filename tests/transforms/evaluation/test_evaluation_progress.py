"""What an evaluation says of how far it is."""

import pytest
from helpers.clock import Clock

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.evaluation import evaluation_progress


def test_counts_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(evaluation_progress, "time", clock)
    with evaluation_progress.Watch(texts=3000, scores=4) as watched:
        clock.now += 10
        watched.count_texts(1000)
        assert progress.current().message == "1,000 of 3,000 texts, 0 of 4 scores, about 20s left"
        clock.now += 20
        watched.count_texts(2000)
        clock.now += 30
        watched.scored()
        assert progress.current().message == "3,000 of 3,000 texts, 1 of 4 scores, about 1m30s left"
    assert progress.current().message == ""
