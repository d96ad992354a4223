"""Figures of token states: heads beside TF-IDF (Ditto, table 4), layers beside layers (SBERT-WK,
figure 1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.calibration.quality import pearson, spearman
from transforms.evaluation.diagnostics.figures import Row, figure
from transforms.evaluation.diagnostics.words import WordCounts, weights_of
from transforms.pooling.states import TokenStates

MOST_TOKENS = 30_000  # without the special ones; their attention in every head is held at once


@dataclass(frozen=True)
class TokenFigures:
    """What was gathered of `tokens` tokens, the special ones left out.

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
) -> TokenFigures:
    """The figures of all batches, up to `MOST_TOKENS` tokens; `layers` 0: their cosines are not
    asked for.
    """
    tokens, total = 0, np.zeros((layers + 1, layers + 1))
    attention: list[np.ndarray] = []
    ids: list[np.ndarray] = []
    variances: list[np.ndarray] = []
    for states in batches:
        plain = _plain(states)
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
    gathered = np.concatenate(attention) if attention else np.empty((0, len(heads)), np.float32)
    changed = np.concatenate(variances) if variances else np.empty(0)
    return TokenFigures(tokens, gathered, ids, total / max(tokens, 1), changed)


def _plain(states: TokenStates) -> np.ndarray:
    keep = states.keep.numpy()
    return keep if states.special is None else keep & ~states.special.numpy()


def _cosines(states: TokenStates, index: np.ndarray, layers: int) -> np.ndarray:
    """The cosines of each token's states in two layers, float64 [L + 1, L + 1, tokens]."""
    import torch

    from transforms.pooling.sbert_wk import layer_cosines
    from transforms.pooling.transfer import to_device

    chosen = to_device(torch.from_numpy(index), states.device)
    parts = [states.hidden[layer][chosen].unsqueeze(1) for layer in range(layers + 1)]
    stacked = parts[0].new_empty((len(index), layers + 1, parts[0].shape[2]))
    for layer, part in enumerate(parts):
        stacked[:, layer] = part[:, 0]
    return layer_cosines(stacked).cpu().numpy()


def of_heads(found: TokenFigures, heads: list[tuple[int, int]], words: WordCounts) -> list[Row]:
    """The correlation (times 100) of each head's attention of tokens to themselves with their
    TF-IDF; the best head.

    The best one is a choice of Ditto's head that needs no labels.
    """
    weights = weights_of(found.ids, words)
    rows = []
    for place, (layer, head) in enumerate(heads):
        own = found.attention[:, place]
        told: dict[str, Any] = {"spearman": 100 * spearman(own, weights), "words": words.source}
        rows.append(
            figure("head", 100 * pearson(own, weights), found.tokens, None, layer, head, **told)
        )
    known = [row for row in rows if row["value"] is not None]
    if known:
        best = max(known, key=lambda row: row["value"])  # of equals the first
        pooler = f"ditto:{best['layer']}-{best['head']}"
        more: dict[str, Any] = {"spearman": best["spearman"], "words": best["words"]}
        rows.append(
            figure(
                "chosen-head", best["value"], best["n"], pooler, best["layer"], best["head"], **more
            )
        )
    return rows


def of_word_variance(found: TokenFigures, pieces: Sequence[str]) -> list[Row]:
    """The mean variance across layers of each token that occurs, the largest first (SBERT-WK, table
    I).

    A token's variance is that of the cosines of its states in neighbouring layers, all layers among
    them.
    """
    ids = np.concatenate(found.ids) if found.ids else np.empty(0, np.int64)
    known, place, counts = np.unique(ids, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=found.variances, minlength=len(known)) / np.maximum(
        counts, 1
    )
    order = np.argsort(-means, kind="stable")
    return [
        figure("word-variance", float(means[at]), int(counts[at]), token=pieces[known[at]])
        for at in order
    ]


def of_layers(found: TokenFigures) -> list[Row]:
    """The mean cosine of a token's states in each two layers, and in layers that are so many apart
    (`hops`).
    """
    count = len(found.layers)
    rows = [
        figure(
            "layer-cosine", float(found.layers[one, other]), found.tokens, None, one, other=other
        )
        for one in range(count)
        for other in range(count)
    ]
    hops = [float(found.layers.diagonal(hop).mean()) for hop in range(1, count)]
    return rows + [
        figure("hop-cosine", value, found.tokens, hops=hop) for hop, value in enumerate(hops, 1)
    ]
