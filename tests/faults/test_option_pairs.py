"""Histories in which every two options meet: after each run the store holds what a model of it
says.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.pair_histories import History
from helpers.pair_model import Models
from helpers.pair_planner import Planner
from helpers.pair_table import NO_ROW, OF_EMBED

from sentence_beam.pipelines.common.embed_options import parser

pytest.importorskip("faiss")
RUNS, HISTORIES = 7, 1  # of a history; of the short form
PARTS = 4  # of all pairs, each met in histories of its own


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Two tiny models."""
    return Models(tmp_path_factory.mktemp("models"))


def test_every_option_has_its_row() -> None:
    flags = {
        flag for action in parser()._actions for flag in action.option_strings if flag[:2] == "--"
    }
    rows = {flag for row in OF_EMBED.values() for flag in row.flags}
    assert not rows & NO_ROW.keys()
    flags -= {flag for flag in flags if flag.startswith("--no-")}
    assert not flags - rows - NO_ROW.keys(), (
        "give a new option its row, or say that no run writes otherwise by it"
    )
    assert not (rows | NO_ROW.keys()) - flags


@pytest.mark.usefixtures("one_model")
@pytest.mark.timeout(1800)
def test_some_histories(
    run: Run, models: Models, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    go(run, models, tmp_path, tell, Planner(39), histories=HISTORIES)


@pytest.mark.slow
@pytest.mark.usefixtures("one_model")
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_pairs(
    run: Run, models: Models, tmp_path: Path, tell: Callable[[str], None], part: int
) -> None:
    planner = Planner.of_part(part, PARTS)
    go(run, models, tmp_path, tell, planner, histories=200)
    assert not planner.uncovered


@pytest.mark.slow
@pytest.mark.usefixtures("one_model")
@pytest.mark.timeout(24 * 3600)
def test_many_histories(
    run: Run, models: Models, tmp_path: Path, tell: Callable[[str], None], size: float
) -> None:
    seed, left = random.SystemRandom().randrange(10**6), max(1, int(2000 * size))
    while left > 0:
        some = min(left, 100)
        go(run, models, tmp_path, tell, Planner(seed), some)
        seed, left = seed + 1, left - some


def go(
    run: Run,
    models: Models,
    folder: Path,
    tell: Callable[[str], None],
    planner: Planner,
    histories: int,
) -> None:
    """Make so many histories, or fewer if all pairs of the planner have met by then."""
    made, runs, refused, pairs = 0, 0, 0, len(planner.uncovered)
    while made < histories and planner.uncovered:
        history = History(run, models, folder / "case", planner)
        history.go(RUNS)
        made, runs, refused = made + 1, runs + len(history.steps), refused + history.refused
    met = pairs - len(planner.uncovered)
    tell(
        f"pairs of options: {made} histories from seed {planner.seed}, {runs} runs, {refused} of them "
        f"refused, {met:,} of {pairs:,} pairs"
    )
