"""JSON files of a store, which have the digest of their content."""

import json
from typing import Any

from sentence_beam.transforms.space import canonical_json, sha256_text

FENCE = "fence"  # in manifest.json alone: what vacuum writes there to move its version
# what a manifest's digest does not cover: itself, and what is in manifest.json alone
UNSEALED = ("digest", FENCE)


def compute_digest(data: dict[str, Any]) -> str:
    """Return the sha256 in hex over the canonical JSON of a manifest.

    It does not cover the fields in `UNSEALED`.
    """
    return sha256_text(
        canonical_json({name: value for name, value in data.items() if name not in UNSEALED})
    )


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest's JSON with its digest."""
    return {**data, "digest": compute_digest(data)}


def check_digest(data: dict[str, Any]) -> None:
    """Raise ValueError if the fields of some JSON do not give its digest."""
    if "digest" not in data:
        raise ValueError("it has no digest")
    if data["digest"] != compute_digest(data):
        raise ValueError("it was changed after it was written, its digest differs")


def to_bytes(content: dict[str, Any]) -> bytes:
    """Return the bytes of JSON in a store: readable, keys sorted."""
    return (json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()
