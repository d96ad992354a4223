"""Sentences inside a template with one mask (PromptBERT, arXiv:2201.04337), and the template
without a sentence.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from transforms.base.errors import OptionError
from transforms.pooling.states import BareMask
from transforms.pooling.transfer import to_device
from transforms.space.poolers import TEXT

_TEMPLATES_PER_PASS = 64
_ENDINGS = ('.', '?', '"', "'")  # fmt: skip


@dataclass(frozen=True)
class FilledTemplate:
    """A template with a sentence: token ids, the place of the mask among them, and the length
    before truncation.
    """

    ids: list[int]
    mask: int
    whole: int


@dataclass(frozen=True)
class BareTemplate:
    """A template without a sentence: token ids, the place of the mask, and the place where the
    sentence would begin.
    """

    ids: list[int]
    mask: int
    gap: int


class PromptTemplate:
    """A template that texts are put into. Truncation takes tokens from the end of the text, never
    from the template.
    """

    def __init__(
        self, template: str, tokenizer: Tokenizer, mask_token: str | None, limit: int | None
    ) -> None:
        before, _, after = template.partition(TEXT)
        self._before, self._after, self._tokenizer, self._limit = before, after, tokenizer, limit
        self._mask_token = mask_token or ""
        mask_id = tokenizer.token_to_id(self._mask_token)
        self._mask_id = -1 if mask_id is None else mask_id
        # without a sentence the blanks on both sides of it would be a token in some vocabularies
        self._before_nothing = before.rstrip() if not after or after[0].isspace() else before
        if tokenizer.encode(before + after).ids.count(self._mask_id) != 1:
            raise OptionError(
                "pooler 'prompt': the tokenizer must find its mask once in the template"
                f" {template!r}"
            )
        self.bare = self._bare()
        if limit is not None and len(self.bare.ids) >= limit:
            raise OptionError(
                f"max tokens {limit}: the template alone has {len(self.bare.ids)}; give more or a"
                " shorter template"
            )

    def __call__(self, texts: list[str]) -> list[FilledTemplate]:
        """The token ids of every text in the template."""
        sentences = [self._sentence(text) for text in texts]
        filled = [f"{self._head(sentence)}{sentence}{self._after}" for sentence in sentences]
        encodings = self._tokenizer.encode_batch(filled)
        return [
            self._cut(encoding, sentence)
            for encoding, sentence in zip(encodings, sentences, strict=True)
        ]

    def _head(self, sentence: str) -> str:
        return self._before if sentence else self._before_nothing

    def _sentence(self, text: str) -> str:
        """The text with a full stop, as in the authors' evaluation, and with mask tokens in it made
        plain words.
        """
        text = text.strip()
        if not text:
            return ""
        # with a blank inside no tokenizer takes it for the special token
        text = text.replace(self._mask_token, f"{self._mask_token[0]} {self._mask_token[1:]}")
        return text if text.endswith(_ENDINGS) else f"{text}."

    def _cut(self, encoding: Encoding, sentence: str) -> FilledTemplate:
        ids, mask = encoding.ids, self._find_mask(encoding, sentence)
        excess = 0 if self._limit is None else len(ids) - self._limit
        if excess <= 0:
            return FilledTemplate(ids, mask, len(ids))
        start, stop = len(self._before), len(self._before) + len(sentence)
        inside = [place for place, span in enumerate(encoding.offsets) if start < span[1] <= stop]
        dropped = set(inside[-excess:])
        left = [token for place, token in enumerate(ids) if place not in dropped]
        return FilledTemplate(left, mask - sum(place < mask for place in dropped), len(ids))

    def _find_mask(self, encoding: Encoding, sentence: str) -> int:
        at, after = self._before.find(self._mask_token), self._after.find(self._mask_token)
        at = at if at >= 0 else len(self._head(sentence)) + len(sentence) + after
        tokens = enumerate(zip(encoding.ids, encoding.offsets, strict=True))
        return next(
            place
            for place, (token, span) in tokens
            if token == self._mask_id and span[0] <= at < span[1]
        )

    def _bare(self) -> BareTemplate:
        before = self._before_nothing
        encoding = self._tokenizer.encode(before + self._after)
        # special tokens around the template have empty spans
        opening = next(place for place, span in enumerate(encoding.offsets) if span[1] > 0)
        gap = opening + sum(0 < span[1] <= len(before) for span in encoding.offsets)
        return BareTemplate(encoding.ids, self._find_mask(encoding, ""), gap)


class BareTemplateStates:
    """The last layer's state at the mask of a template without a sentence (PromptBERT, section
    4.3).

    The tokens after the gap have the positions that they have behind a sentence, so the state
    depends on its length; each length is computed once.
    """

    def __init__(self, model: Any, bare: BareTemplate) -> None:
        self._model, self._bare = model, bare
        self._device = next(model.parameters()).device
        self._first = _first_position(model)
        self._known: dict[int, Tensor] = {}
        self._check()

    def __call__(self, lengths: np.ndarray) -> BareMask:
        """The states [B, H] for sentences of `lengths` [B] tokens, those of the template not
        counted.
        """
        missing = sorted(set(lengths.tolist()) - self._known.keys())
        for start in range(0, len(missing), _TEMPLATES_PER_PASS):
            part = missing[start : start + _TEMPLATES_PER_PASS]
            self._known.update(zip(part, self._run(part), strict=True))
        several, places = np.unique(lengths, return_inverse=True)
        vectors = torch.stack([self._known[length] for length in several.tolist()])
        return BareMask(
            vectors.index_select(0, to_device(places, self._device)),
            to_device(lengths, self._device),
        )

    def _run(self, lengths: list[int]) -> Tensor:
        places = torch.arange(len(self._bare.ids), device=self._device)
        shifts = to_device(np.array(lengths), self._device).unsqueeze(1)
        positions = self._first + places + shifts * (places >= self._bare.gap)
        return self._states(len(lengths), position_ids=positions)

    def _states(self, copies: int, **inputs: Tensor) -> Tensor:
        ids = to_device(np.array([self._bare.ids] * copies), self._device)
        return self._model(input_ids=ids, **inputs).last_hidden_state[:, self._bare.mask]

    @torch.inference_mode()
    def _check(self) -> None:
        """Refuse a model that takes no position ids, disagrees with its own, or gives the same
        whatever they are.
        """
        name = type(self._model).__name__
        if "position_ids" not in inspect.signature(self._model.forward).parameters:
            raise OptionError(f"pooler 'prompt': {name} takes no position ids; say denoise=no")
        (plain, shifted), own = self._run([0, 1]), self._states(1)[0]
        if not torch.allclose(plain, own, rtol=0.05, atol=0.05) or torch.equal(plain, shifted):
            raise OptionError(
                f"pooler 'prompt': {name} does not place tokens by position ids; say denoise=no"
            )


def _first_position(model: Any) -> int:
    """The position of the first token: RoBERTa and its relatives count from the number after their
    padding id.
    """
    embeddings = getattr(model, "embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    return 0 if offset is None else offset + 1
