"""Peers: a sentence-transformers model of mean pooling in ONNX Runtime and in OpenVINO, texts
sorted by length.

What sentence-transformers' own backends do, which ask for another transformers than this project is
tested with. Want `pip install onnx onnxruntime` and `pip install openvino nncf`.
"""

import importlib.util
import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

INPUTS = ("input_ids", "attention_mask")
MAX_TOKENS = 256
CALIBRATION_BATCH = 16

Inputs = dict[str, np.ndarray]
Runtime = Callable[[Inputs], np.ndarray]  # int64 [B, T] each -> last hidden states [B, T, H]


class ExportedModel:
    """A model's tokenizer and pooling around a runtime."""

    def __init__(self, tokenizer: Any, runtime: Runtime):
        self._tokenizer, self._runtime = tokenizer, runtime

    def encode(self, texts: Sequence[str], batch_size: int) -> np.ndarray:
        """float32 [n, d] of length 1, in order; like lengths share a batch."""
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        parts = [
            self._batch([texts[i] for i in order[s : s + batch_size]])
            for s in range(0, len(texts), batch_size)
        ]
        vectors = np.empty((len(texts), parts[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(parts)
        return vectors

    def _batch(self, texts: list[str]) -> np.ndarray:
        inputs = tokens(self._tokenizer, texts)
        mask = inputs["attention_mask"][:, :, None].astype(np.float32)
        pooled = (self._runtime(inputs) * mask).sum(1) / mask.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def tokens(tokenizer: Any, texts: list[str]) -> Inputs:
    """Return the inputs of the exported model for a batch."""
    found: Any = tokenizer(
        texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="np"
    )
    return {name: found[name].astype(np.int64) for name in INPUTS}


def exported(folder: str, texts: Sequence[str]) -> dict[str, ExportedModel]:
    """The model in each runtime that is installed, by its name; `texts` to calibrate int8
    activations on.
    """
    if importlib.util.find_spec("onnx") is None:
        logging.warning("ONNX Runtime and OpenVINO are left out: onnx is not installed")
        return {}
    tokenizer, found = AutoTokenizer.from_pretrained(folder), {}
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "model.onnx"
        export(folder, path)
        for make in (_onnx_runtime, _openvino):
            try:
                found |= {
                    name: ExportedModel(tokenizer, runtime)
                    for name, runtime in make(path, tokenizer, texts).items()
                }
            except ImportError as error:
                logging.warning("a peer is left out: %s", error)
    return found


def _onnx_runtime(path: Path, tokenizer: Any, texts: Sequence[str]) -> dict[str, Runtime]:
    """Weights in int8, activations quantised batch by batch."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(path, path.with_name("int8.onnx"), weight_type=QuantType.QInt8)
    session = onnxruntime.InferenceSession(
        path.with_name("int8.onnx"), providers=["CPUExecutionProvider"]
    )
    return {"ONNX Runtime int8": lambda inputs: session.run(None, inputs)[0]}


def _openvino(path: Path, tokenizer: Any, texts: Sequence[str]) -> dict[str, Runtime]:
    """In what the processor computes natively, and with weights and activations in int8."""
    import nncf
    import openvino

    model = openvino.Core().read_model(path)
    batches = [
        list(texts[i : i + CALIBRATION_BATCH]) for i in range(0, len(texts), CALIBRATION_BATCH)
    ]
    data = nncf.Dataset([tokens(tokenizer, batch) for batch in batches])
    int8 = nncf.quantize(
        model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(batches)
    )
    return {"OpenVINO": _compiled(model), "OpenVINO int8": _compiled(int8)}


def _compiled(model: Any) -> Runtime:
    import openvino

    compiled = openvino.compile_model(model, "CPU")
    return lambda inputs: compiled(inputs)[0]


class _States(torch.nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(folder: str, path: Path) -> None:
    """The last hidden states of the model of a folder, for texts of any number and length."""
    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
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
