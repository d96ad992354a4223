"""The CNN head as a module of sentence-transformers, which loads it with `trust_remote_code=True`.

A model's folder holds its settings and weights in `1_CNN003`, and beside that this file, with the
network in it, as `modeling_cnn.py`. sentence-beam reads the weights alone.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules.module import Module
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.pooling.cnn import CnnNetwork

_ = torch, nn, F  # the network uses them in `modeling_cnn.py`


class CNN003(Module):
    """The network of CNN-SBERT over token states (arXiv:2101.10642, figure 2)."""

    __module__ = "modeling_cnn"  # its name in modules.json

    config_keys: list[str] = ["embedding_dimension"]  # noqa: RUF012 (sentence-transformers' own form)

    def __init__(self, embedding_dimension: int) -> None:
        super().__init__()
        self.embedding_dimension = embedding_dimension
        self.network = CnnNetwork()

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the `sentence_embedding` [B, H] of the tokens to the features."""
        states: Tensor = features["token_embeddings"]
        mask: Tensor = features["attention_mask"].bool()
        vectors = self.network(states.to(next(self.network.parameters()).dtype), mask)
        return {**features, "sentence_embedding": vectors}

    def get_embedding_dimension(self) -> int:
        """Return the width of the vectors: that of the token states."""
        return self.embedding_dimension

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Write settings and weights into the module's folder, and this code beside it."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=True)
        (Path(output_path).parent / "modeling_cnn.py").write_text(_make_source(), encoding="utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> "CNN003":
        """Load the module from the folder `subfolder` of a model."""
        names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        source = {name: kwargs[name] for name in names if name in kwargs}
        module = cls(**cls.load_config(model_name_or_path, **source))
        return cls.load_torch_weights(model_name_or_path, model=module, **source)


def _make_source() -> str:
    """Return this file with the network in place of its import, so that it needs no package."""
    own = Path(__file__).read_text(encoding="utf-8")
    imported = re.compile(r"^from \S+ import CnnNetwork\n(\n_ = .*\n)?", re.MULTILINE)
    return imported.sub(lambda _: f"\n{inspect.getsource(CnnNetwork)}", own)
