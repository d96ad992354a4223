"""A peer: a sentence-transformers model of mean pooling in ONNX Runtime, its weights quantised to int8.

What sentence-transformers' own ONNX backend does, which asks for another transformers than this project is tested with.
Wants `pip install onnx onnxruntime`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

INPUTS = ("input_ids", "attention_mask")
MAX_TOKENS = 256


class OnnxInt8:
    """The model of a folder; exports it into `where`. Raises ImportError where ONNX or its runtime is missing."""

    def __init__(self, folder: str, where: Path):
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        export(folder, where / "model.onnx")
        quantize_dynamic(where / "model.onnx", where / "int8.onnx", weight_type=QuantType.QInt8)
        self._session = onnxruntime.InferenceSession(where / "int8.onnx", providers=["CPUExecutionProvider"])

    def encode(self, texts: list[str], batch_size: int) -> np.ndarray:
        """float32 [n, d] of length 1, in order; like lengths share a batch."""
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        parts = [self._batch([texts[i] for i in order[s : s + batch_size]]) for s in range(0, len(texts), batch_size)]
        vectors = np.empty((len(texts), parts[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(parts)
        return vectors

    def _batch(self, texts: list[str]) -> np.ndarray:
        found: Any = self._tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="np")
        (states,) = self._session.run(None, {name: found[name].astype(np.int64) for name in INPUTS})
        mask = found["attention_mask"][:, :, None].astype(np.float32)
        pooled = (states * mask).sum(1) / mask.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


class _States(torch.nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(folder: str, path: Path) -> None:
    """The last hidden states of the model of a folder, for texts of any number and length."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    example = torch.ones(2, 8, dtype=torch.long)
    free = {name: {0: "texts", 1: "tokens"} for name in (*INPUTS, "states")}
    torch.onnx.export(
        _States(model),
        (example, example),
        path,
        input_names=list(INPUTS),
        output_names=["states"],
        dynamic_axes=free,
        dynamo=False,
    )
