"""Counting the blocks that run."""

import pytest
import torch
from helpers.tiny_models import INNER

from sentence_beam.transforms.encoder.bert import PackedLinear


def count_block_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every block that runs: each leads once from its inner width back to
    the states.
    """
    calls: list[str] = []
    add, linear = PackedLinear.add, torch.nn.functional.linear

    def note(x: torch.Tensor) -> None:
        if x.shape[-1] == INNER:
            calls.append("down")

    def noted_add(self: PackedLinear, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        if self.packed is not None:  # else it calls linear
            note(x)
        return add(self, x, residual)

    monkeypatch.setattr(PackedLinear, "add", noted_add)
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, *a, **k: note(x) or linear(x, *a, **k)
    )
    return calls
