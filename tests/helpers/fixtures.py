"""Fixtures of those who run commands on a tiny model."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads would only wait for each other

import pytest
import torch
from helpers.commands import Run, runner
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.steps.embed import load_encoder
from sentence_beam.transforms.steps.options.job import EmbedJob

_encoders: dict[str, Any] = {}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""
    return runner(capfd)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    torch.set_num_threads(1)
    return save_tiny_model("bert", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of a space is loaded once for all runs of a process: what is tested is what happens
    around it.
    """
    load = load_encoder.load_encoder

    def loaded(job: EmbedJob) -> Any:
        key = repr((job.run.space, job.recipe, job.machine, job.chunks))
        if key not in _encoders:
            _encoders[key] = load(job)
        return _encoders[key]

    monkeypatch.setattr(load_encoder, "load_encoder", loaded)
