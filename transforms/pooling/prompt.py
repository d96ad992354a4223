"""The state of the mask token in a template around the sentence."""

from dataclasses import dataclass

import torch

from transforms.pooling.pooler import Needs
from transforms.pooling.states import Pooled, TokenStates, graded


@dataclass(frozen=True)
class Prompt:
    """e = h_m, the last layer at the template's mask token (PromptBERT, arXiv:2201.04337, section 4).

    `denoise`: less the state of that mask where the template stands alone, its later tokens at the positions that they
    have behind this sentence (section 4.3). A sentence without tokens leaves nothing then: the zero vector.
    """

    layer: int
    dim: int
    denoise: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]), mask=True, bare_mask=self.denoise)

    def __call__(self, states: TokenStates) -> Pooled:
        if states.mask is None:
            raise ValueError("prompt needs TokenStates.mask")
        vectors = states.hidden[self.layer][states.mask].float()
        if self.denoise:
            if states.bare_mask is None:
                raise ValueError("prompt with denoising needs TokenStates.bare_mask")
            vectors = vectors - states.bare_mask.vectors.float()
            vectors = vectors.masked_fill((states.bare_mask.lengths == 0).unsqueeze(1), 0)
        return graded(vectors, torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device))
