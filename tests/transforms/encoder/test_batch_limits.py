"""The largest batch in texts, and what a pass that fails leaves behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_models import TEXTS, save_tiny_model

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.batches import MOST_TEXTS, cut_rows, plan_alike, plan_batches
from sentence_beam.transforms.encoder.tokenize import Tokenized


def one_token_each(texts: int) -> Tokenized:
    """Texts of one token, as a model without special tokens has them."""
    return Tokenized(
        ids=np.zeros(texts, np.int32),
        offsets=np.arange(texts + 1),
        counts=np.ones(texts, np.int32),
        truncated=np.zeros(texts, bool),
    )


def test_a_batch_has_no_more_texts_than_a_kernels_grid() -> None:
    tokenized = one_token_each(200_000)
    sizes = [len(batch.rows) for batch in plan_batches(tokenized, 1 << 20)]
    assert sizes == [MOST_TEXTS, MOST_TEXTS, MOST_TEXTS, 200_000 - 3 * MOST_TEXTS]
    assert {len(batch.rows) for batch in plan_alike(tokenized, 1 << 20)} == {MOST_TEXTS}
    assert cut_rows(np.full(10, 8), 16) == [0, 2, 4, 6, 8, 10]


def test_a_pass_that_fails_keeps_no_states(tmp_path: Path) -> None:
    model = str(save_tiny_model("distilbert", tmp_path / "m"))
    encoder = Encoder.load(model, pooler="first-last", dtype="float32", device="cpu")
    runner: Any = encoder.replicas[0].forward.runner

    def fail(*_: Any) -> None:
        assert runner.hooks.running.states.layers, "there are states of earlier blocks"
        raise torch.OutOfMemoryError("CUDA out of memory")

    runner.models.shortest.transformer.layer[-1].register_forward_pre_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        encoder.replicas[0].forward(next(iter(encoder.plan(encoder.tokenize(TEXTS[:1])).batches)))
    assert runner.hooks.running.states.layers == {}
