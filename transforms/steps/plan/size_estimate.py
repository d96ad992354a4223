"""The size of the shards and of the index that a run would make."""

from dataclasses import asdict
from typing import Any

from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, TOKENS_PER_ROW
from sentence_beam.transforms.index.sizes import estimate_size
from sentence_beam.transforms.steps.index.kind_choice import plan_largest
from sentence_beam.transforms.steps.plan.estimate import Prediction
from sentence_beam.transforms.store.shards.precision import count_vector_bytes

ROW_BYTES = 40  # hash, norm, counts and an id of ordinary length, beside the vector
TEXT_KEPT = 0.5  # compressed bytes in the store for a byte of text


def estimate_shard_bytes(prediction: Prediction) -> float:
    """Estimate the bytes of the shards that a run writes."""
    space = prediction.resolved.space
    plan = prediction.plan
    size = plan.vectors * (count_vector_bytes(space.precision, space.dim) + ROW_BYTES)
    if prediction.resolved.job.keep_text:
        text_tokens = max(0.0, plan.counts.tokens - TOKENS_PER_ROW * plan.rows)
        size += TEXT_KEPT * BYTES_PER_TOKEN * text_tokens
    return size


def name_index(prediction: Prediction) -> str:
    """Return the index that is requested, or "none".

    An index of the store that is known to have too few rows gives way to auto, with the reason.
    """
    request = prediction.resolved.index
    plan = prediction.plan
    if request is None:
        return "none"
    if plan.exact_rows and not plan.counts.carried_units:
        lack = request.spec.lack_of_rows(round(plan.rows))
        if lack:
            return f"auto: {lack}"
    return request.index


def estimate_index_size(prediction: Prediction) -> dict[str, Any] | None:
    """Return the index over all rows and its size; the largest one if several are compared.

    Returns None if no index is requested, or it has too few rows.
    """
    request = prediction.resolved.index
    plan = prediction.plan
    rows = round(plan.vectors) + plan.counts.carried_rows
    if request is None or not rows or request.spec.lack_of_rows(rows):
        return None
    index = plan_largest(request, rows, prediction.resolved.space.dim)
    return {"factory": index.factory, "rows": rows, **asdict(estimate_size(index, rows))}
