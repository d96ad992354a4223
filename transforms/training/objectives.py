"""Objectives as losses of sentence-transformers (arXiv:1908.10084 for the first, the second and
triplets).
"""

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn

from transforms.base.errors import OptionError
from transforms.training.options import CLASSIFICATION, COSENT, RANKING, REGRESSION, TrainOptions

MARGIN = 1.0  # of triplets
SPREAD = 0.02  # standard deviation of the layer that classifies, at the start


def loss_of(model: SentenceTransformer, options: TrainOptions, labels: int) -> nn.Module:
    """The loss that an objective is, at several widths where `--matryoshka` names some.

    Raises OptionError for a width that the model has not.
    """
    loss = _plain(model, options, labels)
    if not options.matryoshka:
        return loss
    full = model.get_embedding_dimension() or 0
    wide = next((dim for dim in options.matryoshka if dim >= full), None)
    if wide is not None:
        raise OptionError(
            f"--matryoshka {wide}: the model's vectors have {full} components; name smaller widths"
        )
    return losses.MatryoshkaLoss(
        model, loss, matryoshka_dims=[full, *sorted(options.matryoshka, reverse=True)]
    )


def _plain(model: SentenceTransformer, options: TrainOptions, labels: int) -> nn.Module:
    if options.objective == CLASSIFICATION:
        return _softmax(model, labels, options.concat)
    if options.objective == REGRESSION:
        return losses.CosineSimilarityLoss(model)
    if options.objective == COSENT:
        return losses.CoSENTLoss(model)
    if options.objective == RANKING:
        return _ranking(model, options)
    return losses.TripletLoss(
        model, distance_metric=losses.TripletDistanceMetric.EUCLIDEAN, triplet_margin=MARGIN
    )


def _softmax(model: SentenceTransformer, labels: int, concat: str) -> losses.SoftmaxLoss:
    """A layer over what `--concat` names, without bias, as in the paper; sentence-transformers' own
    has one.
    """
    width = model.get_embedding_dimension() or 0
    parts = concat.split(",")
    loss = losses.SoftmaxLoss(
        model,
        width,
        labels,
        concatenation_sent_rep="u" in parts,
        concatenation_sent_difference="|u-v|" in parts,
        concatenation_sent_multiplication="u*v" in parts,
    )
    loss.classifier = nn.Linear(len(parts) * width, labels, bias=False, device=model.device)
    nn.init.trunc_normal_(loss.classifier.weight, std=SPREAD)
    return loss


def _ranking(model: SentenceTransformer, options: TrainOptions) -> nn.Module:
    """The other rows of a batch are negatives; those that a guide finds nearer than the positive
    text are not.
    """
    at_once: dict[str, Any] = (
        {} if options.mini_batch is None else {"mini_batch_size": options.mini_batch}
    )
    if options.guide is None:
        cached = (
            losses.CachedMultipleNegativesRankingLoss
            if at_once
            else losses.MultipleNegativesRankingLoss
        )
        return cached(model, **at_once)
    guided = losses.CachedGISTEmbedLoss if at_once else losses.GISTEmbedLoss
    return guided(model, guide_of(options.guide, model.device), **at_once)


def guide_of(guide: str, device: torch.device) -> SentenceTransformer:
    """The model that judges negatives, whole and unchanged."""
    from transforms.encoder.load import quiet_transformers
    from transforms.space import resolve_model

    with quiet_transformers():
        return SentenceTransformer(
            str(resolve_model(guide).root), device=str(device), local_files_only=True
        )


def classifier_of(loss: nn.Module) -> nn.Linear | None:
    """The layer that classifies, of `classification`; it is no part of the model that is
    written.
    """
    return loss.classifier if isinstance(loss, losses.SoftmaxLoss) else None
