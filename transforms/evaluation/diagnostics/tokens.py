"""Figures of token states: heads and TF-IDF (Ditto, table 4), layers (SBERT-WK, figure 1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentence_beam.transforms.calibration.quality import pearson, spearman
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import Row, figure
from sentence_beam.transforms.evaluation.diagnostics.word_figures import WordCounts, weigh_tokens
from sentence_beam.transforms.pooling.states import TokenStates

MOST_TOKENS = 30_000  # without the special ones; their attention in every head is held at once


@dataclass(frozen=True)
class TokenMeasures:
    """Measures of `tokens` tokens, without the special ones.

    `attention` float32 [tokens, heads] of each token to itself, `ids` of each text; `layers`
    float64 [L + 1, L + 1] the mean cosine of a token's states in two layers; `variances` float64
    [tokens] of the cosines of a token's states in neighbouring layers.
    """

    tokens: int
    attention: np.ndarray
    ids: list[np.ndarray]
    layers: np.ndarray
    variances: np.ndarray


def gather(
    batches: Iterable[TokenStates], heads: list[tuple[int, int]], layers: int
) -> TokenMeasures:
    """Measure all batches, up to `MOST_TOKENS` tokens.

    If `layers` is 0, no cosines are computed.
    """
    tokens = 0
    total = np.zeros((layers + 1, layers + 1))
    attention: list[np.ndarray] = []
    ids: list[np.ndarray] = []
    variances: list[np.ndarray] = []
    for states in batches:
        keep = states.keep.numpy()
        plain = keep if states.special is None else keep & ~states.special.numpy()
        index = np.flatnonzero(plain)
        tokens += len(index)
        if heads:
            attention.append(
                np.stack(
                    [states.own_attention[head].cpu().numpy()[index] for head in heads], axis=1
                )
            )
        if layers:
            cosines = _cosines(states, index, layers)
            total += cosines.sum(axis=2)
            variances.append(cosines.diagonal(1).var(axis=1))
        text = np.repeat(np.arange(len(states.offsets) - 1), np.diff(states.offsets.numpy()))[index]
        ids += np.split(
            states.token_ids.numpy()[index],
            np.searchsorted(text, np.arange(1, len(states.offsets) - 1)),
        )
        if tokens >= MOST_TOKENS:
            break
    return TokenMeasures(
        tokens,
        np.concatenate([np.empty((0, len(heads)), np.float32), *attention]),
        ids,
        total / max(tokens, 1),
        np.concatenate([np.empty(0), *variances]),
    )


def _cosines(states: TokenStates, index: np.ndarray, layers: int) -> np.ndarray:
    """Return the cosines of each token's states in two layers, float64 [L + 1, L + 1, tokens]."""
    import torch

    from sentence_beam.transforms.pooling.sbert_wk import layer_cosines
    from sentence_beam.transforms.pooling.transfer import to_device

    chosen = to_device(torch.from_numpy(index), states.device)
    parts = [states.hidden[layer][chosen].unsqueeze(1) for layer in range(layers + 1)]
    stacked = parts[0].new_empty((len(index), layers + 1, parts[0].shape[2]))
    for layer, part in enumerate(parts):
        stacked[:, layer] = part[:, 0]
    return layer_cosines(stacked).cpu().numpy()


def head_figures(
    measures: TokenMeasures, heads: list[tuple[int, int]], words: WordCounts
) -> list[Row]:
    """Correlate each head's attention of tokens to themselves with TF-IDF, times 100.

    The best head is a choice of Ditto's head that needs no labels.
    """
    weights = weigh_tokens(measures.ids, words)
    rows = []
    for place, (layer, head) in enumerate(heads):
        own = measures.attention[:, place]
        more: dict[str, Any] = {"spearman": 100 * spearman(own, weights), "words": words.source}
        rows.append(
            figure("head", 100 * pearson(own, weights), measures.tokens, None, layer, head, **more)
        )
    scored = [row for row in rows if row["value"] is not None]
    if scored:
        best = max(scored, key=lambda row: row["value"])  # of equals the first
        pooler = f"ditto:{best['layer']}-{best['head']}"
        more = {"spearman": best["spearman"], "words": best["words"]}
        rows.append(
            figure(
                "chosen-head", best["value"], best["n"], pooler, best["layer"], best["head"], **more
            )
        )
    return rows


def variance_figures(measures: TokenMeasures, pieces: Sequence[str]) -> list[Row]:
    """Return the mean variance across layers of each token, the largest first (SBERT-WK, table I).

    A token's variance is that of the cosines of its states in neighbouring layers, over all layers.
    """
    ids = np.concatenate([np.empty(0, np.int64), *measures.ids])
    words, place, counts = np.unique(ids, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=measures.variances, minlength=len(words)) / np.maximum(
        counts, 1
    )
    order = np.argsort(-means, kind="stable")
    return [
        figure("word-variance", float(means[at]), int(counts[at]), token=pieces[words[at]])
        for at in order
    ]


def layer_figures(measures: TokenMeasures) -> list[Row]:
    """Return the mean cosine of a token's states in each two layers, and by distance (`hops`)."""
    count = len(measures.layers)
    rows = [
        figure(
            "layer-cosine",
            float(measures.layers[one, other]),
            measures.tokens,
            None,
            one,
            other=other,
        )
        for one in range(count)
        for other in range(count)
    ]
    hops = [float(measures.layers.diagonal(hop).mean()) for hop in range(1, count)]
    return rows + [
        figure("hop-cosine", value, measures.tokens, hops=hop) for hop, value in enumerate(hops, 1)
    ]
