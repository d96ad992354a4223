"""Choose the pass over a model's blocks: the table at the head of the package says which it is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sentence_beam.transforms.base.errors import first_line
from sentence_beam.transforms.encoder import bert
from sentence_beam.transforms.encoder.one_row import OneRowRunner
from sentence_beam.transforms.encoder.packed import PackedRunner
from sentence_beam.transforms.encoder.padded import ByLength, PaddedRunner
from sentence_beam.transforms.encoder.probe import BatchSharing, Probe, Runner
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.encoder.varlen import (
    VarlenRunner,
    choose_kernel,
    describe_missing_kernel,
)
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.space.model_files import ModelFiles


@dataclass(frozen=True)
class ChosenRunner:
    """A pass over a model's blocks, and which texts may share a batch.

    `objection`: why texts are padded, if they need not be.
    """

    runner: Runner
    together: BatchSharing
    objection: str = ""


def choose_runner(
    files: ModelFiles, models: ByLength, tokenizer: TextTokenizer, needs: Needs
) -> ChosenRunner:
    """Return a pass without padding if one exists and agrees with the model's own, else that."""
    model: Any = models.shortest
    unpadded, objection = make_unpadded_runner(files, model, tokenizer, needs)
    padded = PaddedRunner(models, needs, files.layers, tokenizer)
    ids = _select_sound_ids(model, tokenizer.choose_plain_ids(count_embedding_rows(model)))
    probe = Probe(padded, ids, files)
    if unpadded is not None:
        objection = probe.objection(unpadded, many=isinstance(unpadded, OneRowRunner))
        if not objection:
            if isinstance(unpadded, OneRowRunner):
                unpadded.fuse_norms()
            return ChosenRunner(unpadded, BatchSharing.PACKED)
    return ChosenRunner(padded, probe.together(), objection)


def make_unpadded_runner(
    files: ModelFiles, model: Any, tokenizer: TextTokenizer, needs: Needs
) -> tuple[Runner | None, str]:
    """Return a pass without padding, None if there is none; and why a possible one failed."""
    kernel = choose_kernel(model)
    if files.family in bert.FAMILIES and kernel is not None:
        return VarlenRunner(model, needs, kernel), ""
    if files.family in bert.FAMILIES and next(model.parameters()).device.type == "cpu":
        return PackedRunner(model, needs), ""
    if kernel is None:
        return None, describe_missing_kernel(model)
    try:
        return OneRowRunner(files, model, needs, tokenizer.gives_types, kernel), ""
    except Exception as error:  # models raise any type for inputs that they are not made for
        return None, first_line(error)


def _select_sound_ids(model: Any, ids: np.ndarray) -> np.ndarray:
    """Return the token ids with finite embeddings, all if there are none.

    A row of NaN spoils a few texts, not the model.
    """
    rows = model.get_input_embeddings().weight[torch.from_numpy(ids)]
    finite = torch.isfinite(rows).all(dim=1).cpu().numpy()
    return ids[finite] if finite.any() else ids


def count_embedding_rows(model: Any) -> int:
    """Return the number of token ids that the model knows."""
    return model.get_input_embeddings().weight.shape[0]
