"""Put sentences into a template with one mask; run the template without a sentence.

PromptBERT, arXiv:2201.04337.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling.states import BareMask
from sentence_beam.transforms.pooling.transfer import to_device
from sentence_beam.transforms.space.poolers import TEXT

_TEMPLATES_PER_PASS = 64
_ENDINGS = ('.', '?', '"', "'")  # fmt: skip


@dataclass(frozen=True)
class FilledTemplate:
    """A template with a sentence: token ids, place of the mask, length before truncation."""

    ids: list[int]
    mask: int
    whole: int


@dataclass(frozen=True)
class BareTemplate:
    """A template without a sentence: token ids, places of the mask and of the missing sentence."""

    ids: list[int]
    mask: int
    gap: int


class PromptTemplate:
    """A template for texts; truncation cuts tokens off the text, never off the template."""

    def __init__(
        self, template: str, tokenizer: Tokenizer, mask_token: str | None, limit: int | None
    ) -> None:
        before, _, after = template.partition(TEXT)
        self._before = before
        self._after = after
        self._tokenizer = tokenizer
        self._limit = limit
        self._mask_token = mask_token or ""
        mask_id = tokenizer.token_to_id(self._mask_token)
        self._mask_id = -1 if mask_id is None else mask_id
        # without a sentence the blanks on both sides of it would be a token in some vocabularies
        is_blank = not after or after[0].isspace()
        self._before_nothing = before.rstrip() if is_blank else before
        if tokenizer.encode(before + after).ids.count(self._mask_id) != 1:
            raise OptionError(
                "pooler 'prompt': the tokenizer must find its mask once in the template "
                f"{template!r}"
            )
        self.bare = self._make_bare()
        if limit is not None and len(self.bare.ids) >= limit:
            raise OptionError(
                f"max tokens {limit}: the template alone has {len(self.bare.ids)}; "
                "give more or a shorter template"
            )

    def __call__(self, texts: list[str]) -> list[FilledTemplate]:
        """Tokenize every text in the template."""
        sentences = [self._clean(text) for text in texts]
        filled = [f"{self._choose_head(sentence)}{sentence}{self._after}" for sentence in sentences]
        encodings = self._tokenizer.encode_batch(filled)
        return [
            self._cut(encoding, sentence)
            for encoding, sentence in zip(encodings, sentences, strict=True)
        ]

    def _choose_head(self, sentence: str) -> str:
        return self._before if sentence else self._before_nothing

    def _clean(self, text: str) -> str:
        """Add a full stop, as the authors' evaluation does, and make mask tokens plain words."""
        text = text.strip()
        if not text:
            return ""
        # with a blank inside, no tokenizer reads it as the special token
        text = text.replace(self._mask_token, f"{self._mask_token[0]} {self._mask_token[1:]}")
        return text if text.endswith(_ENDINGS) else f"{text}."

    def _cut(self, encoding: Encoding, sentence: str) -> FilledTemplate:
        ids = encoding.ids
        mask = self._find_mask(encoding, sentence)
        if self._limit is None or len(ids) <= self._limit:
            return FilledTemplate(ids, mask, len(ids))
        start = len(self._before)
        stop = len(self._before) + len(sentence)
        inside = [place for place, span in enumerate(encoding.offsets) if start < span[1] <= stop]
        dropped = set(inside[self._limit - len(ids) :])
        kept = [token for place, token in enumerate(ids) if place not in dropped]
        return FilledTemplate(kept, mask - sum(place < mask for place in dropped), len(ids))

    def _find_mask(self, encoding: Encoding, sentence: str) -> int:
        at = self._before.find(self._mask_token)
        if at < 0:
            before = len(self._choose_head(sentence)) + len(sentence)
            at = before + self._after.find(self._mask_token)
        tokens = enumerate(zip(encoding.ids, encoding.offsets, strict=True))
        return next(
            place
            for place, (token, span) in tokens
            if token == self._mask_id and span[0] <= at < span[1]
        )

    def _make_bare(self) -> BareTemplate:
        before = self._before_nothing
        encoding = self._tokenizer.encode(before + self._after)
        # special tokens around the template have empty spans
        opening = next(place for place, span in enumerate(encoding.offsets) if span[1] > 0)
        gap = opening + sum(0 < span[1] <= len(before) for span in encoding.offsets)
        return BareTemplate(encoding.ids, self._find_mask(encoding, ""), gap)


class BareTemplateStates:
    """The last layer's state at the mask of a template without a sentence.

    PromptBERT, section 4.3. The tokens after the gap have the positions that they have after a
    sentence, so the state depends on the sentence's length; each length is computed once.
    """

    def __init__(self, model: Any, bare: BareTemplate) -> None:
        self._model = model
        self._bare = bare
        self._device = next(model.parameters()).device
        self._first = _find_first_position(model)
        self._known: dict[int, Tensor] = {}
        self._check()

    def __call__(self, lengths: np.ndarray) -> BareMask:
        """Return the states [B, H] for sentences of `lengths` [B] tokens of their own."""
        missing = sorted(set(lengths.tolist()) - self._known.keys())
        for start in range(0, len(missing), _TEMPLATES_PER_PASS):
            part = missing[start : start + _TEMPLATES_PER_PASS]
            self._known.update(zip(part, self._run(part), strict=True))
        different, places = np.unique(lengths, return_inverse=True)
        states = torch.stack([self._known[length] for length in different.tolist()])
        vectors = states.index_select(0, to_device(places, self._device))
        return BareMask(vectors, to_device(lengths, self._device))

    def _run(self, lengths: list[int]) -> Tensor:
        places = torch.arange(len(self._bare.ids), device=self._device)
        shifts = to_device(np.array(lengths), self._device).unsqueeze(1)
        positions = self._first + places + shifts * (places >= self._bare.gap)
        return self._compute_states(len(lengths), position_ids=positions)

    def _compute_states(self, copies: int, **inputs: Tensor) -> Tensor:
        ids = to_device(np.array([self._bare.ids] * copies), self._device)
        return self._model(input_ids=ids, **inputs).last_hidden_state[:, self._bare.mask]

    @torch.inference_mode()
    def _check(self) -> None:
        """Raise OptionError if the model does not place tokens by position ids."""
        name = type(self._model).__name__
        if "position_ids" not in inspect.signature(self._model.forward).parameters:
            raise OptionError(f"pooler 'prompt': {name} takes no position ids; say denoise=no")
        plain, shifted = self._run([0, 1])
        own = self._compute_states(1)[0]
        if not torch.allclose(plain, own, rtol=0.05, atol=0.05) or torch.equal(plain, shifted):
            raise OptionError(
                f"pooler 'prompt': {name} does not place tokens by position ids; say denoise=no"
            )


def _find_first_position(model: Any) -> int:
    """Return the position of the first token; RoBERTa and its kin count from padding id + 1."""
    embeddings = getattr(model, "embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    return 0 if offset is None else offset + 1
