"""The forward pass: from a batch of token ids to the packed token states that a pooler needs."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from sentence_beam.transforms.base.errors import OptionError, UnfitModelError
from sentence_beam.transforms.encoder.batch_memory import token_bytes
from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.choose_runner import choose_runner, count_embedding_rows
from sentence_beam.transforms.encoder.layer_hooks import LayerStates
from sentence_beam.transforms.encoder.padded import ByLength
from sentence_beam.transforms.encoder.probe import BatchSharing, Runner
from sentence_beam.transforms.encoder.prompt_template import BareTemplateStates
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import TokenStates
from sentence_beam.transforms.pooling.transfer import to_device
from sentence_beam.transforms.space.model_files import ModelFiles

_LONGEST = 512  # assumed tokens of a text, to estimate memory, if the model has no limit


class ForwardPass(Protocol):
    """A pass up to the layers that a pooler needs, on any engine.

    `together`: which texts may share a batch; `objection`: why texts are padded, if they need not
    be; `token_bytes`: about the memory of a token.
    """

    together: BatchSharing
    objection: str
    token_bytes: int

    def __call__(self, batch: Batch) -> TokenStates:
        """Return the token states of the batch's texts, in its order."""

    @property
    def is_causal(self) -> bool:
        """Whether a token's state does not depend on the tokens after it."""


class Forward:
    """A model's forward pass up to the layers that a pooler needs.

    `runner`: the pass over the blocks, None if no layer is needed; `together`: which texts may
    share a batch; `objection`: why there is no pass without padding, if there could be one;
    `token_bytes`: about the memory of a token. Raises `UnfitModelError` if the model cannot run, or
    differs from one pass to the next.
    """

    def __init__(
        self, files: ModelFiles, model: Any, tokenizer: TextTokenizer, needs: Needs
    ) -> None:
        _check_vocabulary(files, model, tokenizer)
        models = ByLength(model)
        self._device = next(model.parameters()).device
        self._embedding: nn.Module = model.get_input_embeddings()
        self._raw = needs.raw
        if needs.raw and not files.modules.static:
            _check_embedding_width(files, model)
        self._prompt_tokens = tokenizer.prompt_tokens
        self._special = _make_lookup_table(tokenizer.special_ids, count_embedding_rows(model))
        self._head = pooler_head(model) if needs.pooler_head else None
        self._plain = tokenizer.choose_plain_ids(count_embedding_rows(model))
        self._needed = max(needs.layers, default=0)
        self.runner: Runner | None = None
        self.token_bytes = token_bytes(files, model, needs, tokenizer.limit or _LONGEST)
        self.together = BatchSharing.PACKED
        self.objection = ""
        if needs.layers or needs.heads:
            chosen = choose_runner(files, models, tokenizer, needs)
            self.runner = chosen.runner
            self.together = chosen.together
            self.objection = chosen.objection
        self._bare = None
        if needs.bare_mask and tokenizer.template is not None:
            self._bare_length = len(tokenizer.template.bare.ids)
            self._bare = BareTemplateStates(models.shortest, tokenizer.template.bare)

    def __call__(self, batch: Batch) -> TokenStates:
        """Return the token states of the batch's texts, in its order."""
        states = LayerStates() if self.runner is None else self.runner.run(batch)
        raw = self._look_up(batch) if self._raw else None
        mask = None if batch.masks is None else torch.from_numpy(batch.offsets[:-1] + batch.masks)
        bare = None if self._bare is None else self._bare(batch.lengths - self._bare_length)
        return TokenStates(
            hidden=states.layers,
            token_ids=torch.from_numpy(batch.ids),
            offsets=torch.from_numpy(batch.offsets),
            keep=torch.ones(len(batch.ids), dtype=torch.bool),
            raw=raw,
            special=torch.from_numpy(self._special[batch.ids]),
            prompt_tokens=self._prompt_tokens,
            head=self._head,
            own_attention=states.heads,
            mask=mask,
            bare_mask=bare,
        )

    def _look_up(self, batch: Batch) -> Tensor:
        """Return the rows of the embedding matrix for a batch's tokens."""
        rows = self._embedding(to_device(batch.ids, self._device))
        # I-BERT's module returns their scale too
        return rows[0] if isinstance(rows, tuple) else rows

    @cached_property
    def is_causal(self) -> bool:
        """Whether a token's state does not depend on the tokens after it."""
        if self.runner is None or not self._needed:
            return False
        one = np.resize(self._plain, 8)
        other = one.copy()
        other[-1] = next((number for number in self._plain if number != one[-1]), one[-1])
        batches = [Batch(np.arange(1), ids, np.array([len(ids)])) for ids in (one, other)]
        with torch.inference_mode():
            states = [self.runner.run(batch).layers[self._needed][:-1] for batch in batches]
        return bool(torch.equal(*states))


def _check_vocabulary(files: ModelFiles, model: Any, tokenizer: TextTokenizer) -> None:
    ids = tokenizer.vocabulary
    rows = count_embedding_rows(model)
    if ids > rows:
        raise OptionError(
            f"{files.folder}: the tokenizer has ids up to {ids - 1}, the model {rows} token "
            "embeddings; save the model again after resize_token_embeddings"
        )


def _check_embedding_width(files: ModelFiles, model: Any) -> None:
    """Raise UnfitModelError if the embedding matrix is not as wide as the space has it."""
    width = model.get_input_embeddings().weight.shape[1]
    if width != files.embedding:
        raise UnfitModelError(
            f"{files.folder}: token embeddings of {files.family} have {width} components, not the "
            f"{files.embedding} of its configuration; use a pooler of the model's layers"
        )


def pooler_head(model: Any) -> Callable[[Tensor], Tensor]:
    """Return the tanh pooler, a function [B, H] -> [B, H]."""
    pooler = model.pooler
    if isinstance(pooler, nn.Linear):  # ALBERT and BigBird have the activation outside
        name = "pooler_activation" if hasattr(model, "pooler_activation") else "activation"
        activation = getattr(model, name)
        return lambda first: activation(pooler(first.to(pooler.weight.dtype)))
    return lambda first: pooler(first.to(pooler.dense.weight.dtype).unsqueeze(1))


def _make_lookup_table(ids: np.ndarray, size: int) -> np.ndarray:
    table = np.zeros(max(size, int(ids.max(initial=0)) + 1), dtype=bool)
    table[ids] = True
    return table
