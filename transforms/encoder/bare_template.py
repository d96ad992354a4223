"""What a template's mask holds without a sentence, for sentences of every length (PromptBERT, section 4.3)."""

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transforms.encoder.template import Bare
from transforms.errors import OptionError
from transforms.pooling.states import BareMask

_TEMPLATES_PER_PASS = 64


class BareTemplate:
    """The last layer at the mask of the template alone, tokens after the gap shifted by a sentence's length.

    It depends on model and template only: each length is computed once.
    """

    def __init__(self, model: Any, bare: Bare) -> None:
        self._model, self._bare = model, bare
        self._device = next(model.parameters()).device
        self._first = _first_position(model)
        self._known: dict[int, Tensor] = {}
        self._check()

    def __call__(self, lengths: np.ndarray) -> BareMask:
        """Vectors for sentences of these token counts [B], the template's own tokens not counted."""
        missing = sorted(set(lengths.tolist()) - self._known.keys())
        for start in range(0, len(missing), _TEMPLATES_PER_PASS):
            part = missing[start : start + _TEMPLATES_PER_PASS]
            self._known.update(zip(part, self._run(part), strict=True))
        vectors = torch.stack([self._known[length] for length in lengths.tolist()])
        return BareMask(vectors, torch.from_numpy(lengths).to(self._device))

    def _run(self, lengths: list[int]) -> Tensor:
        places = torch.arange(len(self._bare.ids), device=self._device)
        shifts = torch.tensor(lengths, device=self._device).unsqueeze(1)
        positions = self._first + places + shifts * (places >= self._bare.gap)
        return self._states(len(lengths), position_ids=positions)

    def _states(self, copies: int, **inputs: Tensor) -> Tensor:
        ids = torch.tensor([self._bare.ids] * copies, device=self._device)
        return self._model(input_ids=ids, **inputs).last_hidden_state[:, self._bare.mask]

    @torch.inference_mode()
    def _check(self) -> None:
        """Position ids must be taken, start where the model's own start, and make a difference."""
        name = type(self._model).__name__
        if "position_ids" not in inspect.signature(self._model.forward).parameters:
            raise OptionError(f"pooler 'prompt': {name} takes no position ids; say denoise=no")
        (plain, shifted), own = self._run([0, 1]), self._states(1)[0]
        if not torch.allclose(plain, own, rtol=0.05, atol=0.05) or torch.equal(plain, shifted):
            raise OptionError(f"pooler 'prompt': {name} does not place tokens by position ids; say denoise=no")


def _first_position(model: Any) -> int:
    """Position of the first token: RoBERTa and its kin count from behind their padding id."""
    embeddings = getattr(model, "embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    return 0 if offset is None else offset + 1
