"""Tiny cross-encoders with random weights, saved by sentence-transformers."""

from collections.abc import Sequence
from pathlib import Path

from helpers.tiny_models import save_tiny_model


def save_cross_encoder(folder: Path, labels: Sequence[str] = ()) -> Path:
    """A cross-encoder that gives scores, or these labels."""
    import torch
    from sentence_transformers import CrossEncoder

    bert = save_tiny_model("bert", folder.with_name(f"{folder.name}-bert"))
    torch.manual_seed(0)
    named = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: at for at, label in enumerate(labels)},
    }
    model = CrossEncoder(
        str(bert),
        num_labels=len(labels) or 1,
        device="cpu",
        local_files_only=True,
        config_kwargs=named if labels else {},
    )
    for weight in model.parameters():  # far from 0, so that scores differ
        weight.data.mul_(1.5)
    model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
    return folder
