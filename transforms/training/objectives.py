"""Objectives as losses of sentence-transformers.

Classification, regression and triplets are those of arXiv:1908.10084.
"""

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.training.train_options import (
    CLASSIFICATION,
    COSENT,
    RANKING,
    REGRESSION,
    TrainOptions,
)

MARGIN = 1.0  # of triplets
SPREAD = 0.02  # standard deviation of the layer that classifies, at the start


def make_loss(model: SentenceTransformer, options: TrainOptions, labels: int) -> nn.Module:
    """Return the loss of an objective, at several widths if `--matryoshka` names some.

    Raises OptionError for a width that the model does not have.
    """
    loss = _make_plain_loss(model, options, labels)
    if not options.matryoshka:
        return loss
    full = model.get_embedding_dimension() or 0
    wide = next((dim for dim in options.matryoshka if dim >= full), None)
    if wide is not None:
        raise OptionError(
            f"{cite('matryoshka')} {wide}: the model's vectors have {full} components; name smaller"
            " widths"
        )
    return losses.MatryoshkaLoss(
        model, loss, matryoshka_dims=[full, *sorted(options.matryoshka, reverse=True)]
    )


def _make_plain_loss(model: SentenceTransformer, options: TrainOptions, labels: int) -> nn.Module:
    if options.objective == CLASSIFICATION:
        return _make_softmax(model, labels, options.concat)
    if options.objective == REGRESSION:
        return losses.CosineSimilarityLoss(model)
    if options.objective == COSENT:
        return losses.CoSENTLoss(model)
    if options.objective == RANKING:
        return _make_ranking(model, options)
    return losses.TripletLoss(
        model, distance_metric=losses.TripletDistanceMetric.EUCLIDEAN, triplet_margin=MARGIN
    )


def _make_softmax(model: SentenceTransformer, labels: int, concat: str) -> losses.SoftmaxLoss:
    """Return a softmax over the parts of `--concat`, without bias, as in the paper.

    The layer of sentence-transformers has a bias.
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


def _make_ranking(model: SentenceTransformer, options: TrainOptions) -> nn.Module:
    """Return the loss with the other rows of a batch as negatives.

    Rows that a guide finds nearer than the positive text do not count.
    """
    size = options.mini_batch
    if options.guide is None:
        if size is None:
            return losses.MultipleNegativesRankingLoss(model)
        return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=size)
    guide = load_guide(options.guide, model.device)
    if size is None:
        return losses.GISTEmbedLoss(model, guide)
    return losses.CachedGISTEmbedLoss(model, guide, mini_batch_size=size)


def load_guide(guide: str, device: torch.device) -> SentenceTransformer:
    """Load the model that judges negatives, whole and unchanged."""
    from sentence_beam.transforms.encoder.load import quiet_transformers
    from sentence_beam.transforms.space import resolve_model

    with quiet_transformers():
        return SentenceTransformer(
            str(resolve_model(guide).root), device=str(device), local_files_only=True
        )


def find_classifier(loss: nn.Module) -> nn.Linear | None:
    """Return the layer that classifies, which is no part of the written model, or None."""
    return loss.classifier if isinstance(loss, losses.SoftmaxLoss) else None
