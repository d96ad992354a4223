"""The forward pass: a batch of token ids -> packed token states of what a pooler needs -> pooled
vectors.
"""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transforms.base.errors import OptionError, UnfitModelError, first_line
from transforms.encoder import bert
from transforms.encoder.batches import Batch
from transforms.encoder.layer_hooks import LayerStates
from transforms.encoder.memory import token_bytes
from transforms.encoder.one_row import OneRowRunner
from transforms.encoder.packed import PackedRunner
from transforms.encoder.padded import ByLength, PaddedRunner
from transforms.encoder.probe import BatchSharing, Probe, Runner
from transforms.encoder.template import BareTemplateStates
from transforms.encoder.tokenize import TextTokenizer
from transforms.encoder.varlen import VarlenRunner, kernel_for
from transforms.pooling.pooler import Needs
from transforms.pooling.states import BareMask, TokenStates
from transforms.pooling.transfer import to_device
from transforms.space.model_files import ModelFiles

_LOGGER = logging.getLogger(__name__)
_LONGEST = 512  # tokens that a text has, where there is no limit, as far as memory is concerned


class Forward:
    """A model's forward pass as far as a pooler needs it; its results are packed token states.

    `together`: which texts may share a batch; `objection`: what spoke against a pass without
    padding, where one was tried; `token_bytes`: about how much memory each token takes. Raises
    `UnfitModelError` where the model cannot run, or not twice alike.
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
        self._special = _lookup_table(tokenizer.special_ids, embedding_rows(model))
        self._head = pooler_head(model) if needs.pooler_head else None
        self._plain = tokenizer.plain_ids(embedding_rows(model))
        self._needed = max(needs.layers, default=0)
        self._runner: Runner | None = None
        self.token_bytes = token_bytes(files, model, needs, tokenizer.limit or _LONGEST)
        self.together, self.objection = BatchSharing.PACKED, ""
        if needs.layers or needs.heads:
            self._runner, self.together, self.objection = _make_runner(
                files, models, tokenizer, needs
            )
        self._bare = None
        if needs.bare_mask and tokenizer.template is not None:
            self._bare_length = len(tokenizer.template.bare.ids)
            self._bare = BareTemplateStates(models.shortest, tokenizer.template.bare)

    def __call__(self, batch: Batch) -> TokenStates:
        """The token states of the batch's texts, in its order."""
        found = self._runner.run(batch) if self._runner is not None else LayerStates()
        return TokenStates(
            hidden=found.layers,
            token_ids=torch.from_numpy(batch.ids),
            offsets=torch.from_numpy(batch.offsets),
            keep=torch.ones(len(batch.ids), dtype=torch.bool),
            raw=self._embedded(batch) if self._raw else None,
            special=torch.from_numpy(self._special[batch.ids]),
            prompt_tokens=self._prompt_tokens,
            head=self._head,
            own_attention=found.heads,
            mask=(
                None if batch.masks is None else torch.from_numpy(batch.offsets[:-1] + batch.masks)
            ),
            bare_mask=self._bare_mask(batch),
        )

    def _embedded(self, batch: Batch) -> Tensor:
        """The rows of the embedding matrix for a batch's tokens; I-BERT's module gives their scale
        beside them.
        """
        found = self._embedding(to_device(batch.ids, self._device))
        rows: Tensor = found[0] if isinstance(found, tuple) else found
        return rows

    @cached_property
    def is_causal(self) -> bool:
        """Whether a token's state knows nothing of the tokens after it."""
        if self._runner is None or not self._needed:
            return False
        one = np.resize(self._plain, 8)
        other = one.copy()
        other[-1] = next((number for number in self._plain if number != one[-1]), one[-1])
        batches = [Batch(np.arange(1), ids, np.array([len(ids)])) for ids in (one, other)]
        with torch.inference_mode():
            states = [self._runner.run(batch).layers[self._needed][:-1] for batch in batches]
        return bool(torch.equal(*states))

    def _bare_mask(self, batch: Batch) -> BareMask | None:
        return None if self._bare is None else self._bare(batch.lengths - self._bare_length)


def _make_runner(
    files: ModelFiles, models: ByLength, tokenizer: TextTokenizer, needs: Needs
) -> tuple[Runner, BatchSharing, str]:
    """A pass over the blocks, which texts may share a batch, and what spoke against a pass without
    padding.

    A pass without padding where there is one and it agrees with the model's own, else that one.
    """
    model: Any = models.shortest
    unpadded, objection = _unpadded(files, model, tokenizer, needs)
    padded = PaddedRunner(models, needs, files.layers, tokenizer)
    probe = Probe(padded, _sound_ids(model, tokenizer.plain_ids(embedding_rows(model))), files)
    if unpadded is not None:
        objection = probe.objection(unpadded, many=isinstance(unpadded, OneRowRunner))
        if not objection:
            if isinstance(unpadded, OneRowRunner):
                unpadded.fuse_norms()
            return unpadded, BatchSharing.PACKED, ""
    if objection:
        _LOGGER.warning(
            "%s: %s: texts of a batch are padded: %s", files.folder, files.family, objection
        )
    return padded, probe.together(), objection


def _unpadded(
    files: ModelFiles, model: Any, tokenizer: TextTokenizer, needs: Needs
) -> tuple[Runner | None, str]:
    """A pass without padding, None where there is none; and why not, where it might have been."""
    kernel = kernel_for(model)
    if files.family in bert.FAMILIES and kernel is not None:
        return VarlenRunner(model, needs, kernel), ""
    if files.family in bert.FAMILIES and next(model.parameters()).device.type == "cpu":
        return PackedRunner(model, needs), ""
    if kernel is None:
        return None, ""
    try:
        return OneRowRunner(files, model, needs, tokenizer.gives_types, kernel), ""
    except Exception as error:  # a model's code may raise every kind for what it is not made for
        return None, first_line(error)


def _check_vocabulary(files: ModelFiles, model: Any, tokenizer: TextTokenizer) -> None:
    known, rows = tokenizer.vocabulary, embedding_rows(model)
    if known > rows:
        raise OptionError(
            f"{files.folder}: the tokenizer has ids up to {known - 1}, the model {rows} token"
            " embeddings; save the model again after resize_token_embeddings"
        )


def _check_embedding_width(files: ModelFiles, model: Any) -> None:
    """Raise UnfitModelError if the rows of the embedding matrix are not as wide as the space
    says.
    """
    width = model.get_input_embeddings().weight.shape[1]
    if width != files.embedding:
        raise UnfitModelError(
            f"{files.folder}: token embeddings of {files.family} have {width} components, not the "
            f"{files.embedding} of its configuration; use a pooler of the model's layers"
        )


def _sound_ids(model: Any, ids: np.ndarray) -> np.ndarray:
    """Those of the token ids whose embeddings are finite: one row of NaN spoils a few texts, not
    the model.
    """
    rows = model.get_input_embeddings().weight[torch.from_numpy(ids)]
    finite = torch.isfinite(rows).all(dim=1).cpu().numpy()
    return ids[finite] if finite.any() else ids


def embedding_rows(model: Any) -> int:
    """How many token ids the model knows."""
    return model.get_input_embeddings().weight.shape[0]


def pooler_head(model: Any) -> Callable[[Tensor], Tensor]:
    """The tanh pooler, a function [B, H] -> [B, H]; BERT keeps its tanh inside, ALBERT and BigBird
    beside it.
    """
    pooler = model.pooler
    if isinstance(pooler, nn.Linear):
        activation = (
            model.pooler_activation if hasattr(model, "pooler_activation") else model.activation
        )
        return lambda first: activation(pooler(first.to(pooler.weight.dtype)))
    return lambda first: pooler(first.to(pooler.dense.weight.dtype).unsqueeze(1))


def _lookup_table(ids: np.ndarray, size: int) -> np.ndarray:
    table = np.zeros(max(size, int(ids.max(initial=0)) + 1), dtype=bool)
    table[ids] = True
    return table
