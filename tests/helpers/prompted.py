"""Tiny models in sentence-transformers' layout, with prompts."""

import json
from pathlib import Path
from typing import Any

from helpers.tiny_models import HIDDEN, save_tiny_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

GEMMA = {"query": "the red dog ", "document": "a cat ", "STS": "the man "}


def save_prompted(folder: Path, prompts: dict[str, Any], default: str | None = None) -> Path:
    """Write a model with a mean pooling and these prompts into a new folder; return it."""
    base = save_tiny_model("bert", folder.parent / f"{folder.name}-base")
    stack = [st.Transformer(str(base)), st.Pooling(HIDDEN, "mean")]
    SentenceTransformer(modules=stack, device="cpu").save(str(folder))
    set_prompts(folder, prompts, default)
    return folder


def set_prompts(folder: Path, prompts: dict[str, Any], default: str | None = None) -> None:
    """Replace a model's prompts."""
    config = {"prompts": prompts, "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))


def reference(folder: Path) -> SentenceTransformer:
    """Return the model in sentence-transformers."""
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)
