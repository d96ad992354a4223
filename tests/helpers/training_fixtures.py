"""A tiny model that can learn by heart, data for it, and `train` with both."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from helpers.commands import Outcome, Run
from helpers.tiny_models import save_tiny_model
from helpers.training import labelled_rows, scored_rows, triplet_rows, write_tsv

Train = Callable[..., Outcome]
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FILES = {
    "regression": "scored.tsv",
    "cosent": "scored.tsv",
    "classification": "labelled.tsv",
    "triplet": "triplets.tsv",
    "ranking": "triplets.tsv",
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Train on one thread, so that the same training gives the same bytes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, and with pairs and triplets."""
    folder = tmp_path_factory.mktemp("training")
    save_tiny_model("bert", folder / "bert", **WITHOUT_DROPOUT)
    write_tsv(folder / "scored.tsv", scored_rows())
    write_tsv(folder / "labelled.tsv", labelled_rows())
    write_tsv(folder / "triplets.tsv", triplet_rows())
    return folder


@pytest.fixture
def train(run: Run, data: Path, tmp_path: Path) -> Train:
    """`train` with the tiny model into `tmp_path/model`, on the objective's file; options win.

    The command ends with `status`; `said` is on stderr.
    """

    def call(objective: str, *options: object, status: int = 0, said: str = "") -> Outcome:
        own: dict[str, object] = {"--output": tmp_path / "model", "--model": data / "bert"}
        own |= {"--lr": "3e-3", "--input": data / FILES[objective]}
        if FILES[objective] == "scored.tsv":
            own["--scores"] = "0,5"
        named = [word for flag in own.keys() - set(options) for word in (flag, own[flag])]
        done = run("train", "--objective", objective, *named, *options)
        assert done.status == status, done.err
        assert said in done.err
        return done

    return call
