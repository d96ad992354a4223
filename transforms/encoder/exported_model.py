"""Write an encoder as a folder for `Encoder.load`, and for sentence-transformers if possible."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.calibration.affine import affine_map
from sentence_beam.transforms.calibration.methods import AFFINE
from sentence_beam.transforms.space import ModelFiles, PoolerSpec, Space
from sentence_beam.transforms.space.exported import EXPORTED, Exported
from sentence_beam.transforms.space.json_files import read_json_if_there
from sentence_beam.transforms.space.pooler_spec import PoolerPart
from sentence_beam.transforms.space.st_modules import (
    DOCUMENT,
    METRICS,
    POOLING_MODES,
    QUERY,
    find_transformer_config,
)

MODEL = "model"
CALIBRATION = "calibration"
_COPIED = (".json", ".safetensors", ".txt", ".model", ".jinja")
_ST = "sentence_transformers.models."
_KINDS = {"dense": "Dense", "layer-norm": "LayerNorm", "normalize": "Normalize"}
_NAMES = {ours: theirs for theirs, ours in POOLING_MODES.items()}


@dataclass(frozen=True)
class Export:
    """The encoder to export: model files, space, pooler, calibration.

    `query_prompt` is the store's, if it remembers one; `metric` the one that compares its vectors.
    """

    files: ModelFiles
    space: Space
    pooler: PoolerSpec
    calibration: Calibration | None
    query_prompt: str | None = None
    metric: str = "cosine"


def write_export(export: Export, folder: Path) -> str | None:
    """Write the encoder into an empty local folder.

    Return why sentence-transformers cannot load it, or None.
    """
    _copy_model(export, folder / MODEL)
    if export.calibration is not None:
        (folder / CALIBRATION).mkdir()
        for name, data in export.calibration.to_files().items():
            (folder / CALIBRATION / name).write_bytes(data)
    (folder / EXPORTED).write_bytes(_describe(export, folder).to_bytes())
    unfit = explain_unsupported(export)
    if unfit is None:
        _write_modules(export, folder)
    return unfit


def explain_unsupported(export: Export) -> str | None:
    """Return why sentence-transformers cannot make these vectors; None if it can."""
    modules = export.files.modules
    has_layers = any(layers in export.space.pooler for layers in ("mix", "tokens", "cnn"))
    if modules.routes or modules.static or has_layers:
        return (
            "its modules are more than a transformer and a pooling; the folder in `model` is the "
            "model's own"
        )
    for part in PoolerSpec.from_json(export.space.pooler).parts:
        if not _is_theirs(part):
            return f"it has no pooler {part}"
    if export.calibration is not None:
        method = export.calibration.spec
        if method.name not in AFFINE:
            return f"it has no calibration {method}"
    return None


def _is_theirs(part: PoolerPart) -> bool:
    """Return whether sentence-transformers pools as a part of a SPEC does."""
    options = dict(part.options)
    ranks = ["attended"]
    if options.get("count") == "all":
        ranks.append("counted")
    if options.get("layer") != "last" or options.get("rank", "attended") not in ranks:
        return False
    return part.name in _NAMES and options["count"] in ("all", "no-prompt")


def _copy_model(export: Export, folder: Path) -> None:
    """Copy the model's directory; set float32 and the space's most tokens in its configuration."""
    # code of the CNN head, for sentence-transformers; nothing here runs it
    own_code = ("modeling_cnn.py",) if export.files.has_cnn_head else ()

    def is_unwanted(name: str) -> bool:
        return "." in name and not name.endswith(_COPIED) and name not in own_code

    shutil.copytree(
        export.files.root, folder, ignore=lambda _, names: set(filter(is_unwanted, names))
    )
    if export.files.modules.static:
        return
    transformer = folder / export.files.modules.transformer
    _edit(transformer / "config.json", dtype="float32", torch_dtype=None)
    if export.space.max_tokens is not None:
        path = find_transformer_config(transformer)
        config = read_json_if_there(path)
        limits = {}
        for name in ("processor_kwargs", "tokenizer_args"):
            if config.get(name):
                limits[name] = {**config[name], "model_max_length": export.space.max_tokens}
        _edit(path, max_seq_length=export.space.max_tokens, **limits)


def _describe(export: Export, folder: Path) -> Exported:
    space = export.space
    parts = enumerate(export.pooler.parts)
    calibration = CALIBRATION if export.calibration else None
    pooler = PoolerSpec(tuple(_copy_table(part, folder, number) for number, part in parts))
    return Exported(
        model=MODEL,
        pooler=pooler,
        prompt=space.prompt,
        query_prompt=export.query_prompt,
        max_tokens=space.max_tokens,
        normalize=space.normalize,
        truncate_dim=space.truncate_dim,
        dtype=space.dtype,
        calibration=calibration,
    )


def _copy_table(part: PoolerPart, folder: Path, number: int) -> PoolerPart:
    """Copy a part's token statistics into the folder; name them relative to it."""
    if part.table is None:
        return part
    shutil.copytree(part.table, folder / f"table-{number}")
    return part.replaced(table=f"table-{number}")


def _write_modules(export: Export, folder: Path) -> None:
    """Write the modules of sentence-transformers.

    They are Transformer, Pooling, the model's own layers, Dense (calibrate and truncate) and
    Normalize.
    """
    files = export.files
    modules: list[dict[str, Any]] = []

    def add(kind: str, path: str) -> None:
        number = len(modules)
        modules.append({"idx": number, "name": str(number), "path": path, "type": _ST + kind})

    add("Transformer", "/".join(filter(None, (MODEL, files.modules.transformer))))
    add("Pooling", "1_Pooling")
    _write_config(folder / "1_Pooling", _describe_pooling(export))
    if export.space.pooler.get("then"):
        for layer in files.modules.layers:
            add(_KINDS[layer.kind], f"{MODEL}/{layer.folder.relative_to(files.root)}")
    if export.calibration is not None or export.space.truncate_dim is not None:
        add("Dense", "calibrated")
        _write_dense(folder / "calibrated", *_make_dense(export))
    if export.space.normalize:
        add("Normalize", "normalized")
        (folder / "normalized").mkdir()
    _write_json(folder / "modules.json", modules)
    _write_json(folder / "config_sentence_transformers.json", _describe_prompts(export))


def _describe_pooling(export: Export) -> dict[str, Any]:
    parts = PoolerSpec.from_json(export.space.pooler).parts
    return {
        "embedding_dimension": export.files.hidden,
        "pooling_mode": [_NAMES[part.name] for part in parts],
        "include_prompt": parts[0].option("count") == "all",
    }


def _make_dense(export: Export) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix [p, dim] and offset [dim], float64, that calibrate and truncate vectors."""
    calibration = export.calibration
    if calibration is not None:
        matrix, offset = affine_map(calibration.tensors, calibration.info["input_dim"])
    else:
        width = _find_pooled_width(export)
        matrix = np.eye(width)
        offset = np.zeros(width)
    return matrix[:, : export.space.dim], offset[: export.space.dim]


def _find_pooled_width(export: Export) -> int:
    layers = export.space.pooler.get("then")
    spec = PoolerSpec.from_json(export.space.pooler)
    return layers[-1]["dim"] if layers else spec.dim(export.files.hidden, export.files.embedding)


def _write_dense(folder: Path, matrix: np.ndarray, offset: np.ndarray) -> None:
    sizes = {"in_features": matrix.shape[0], "out_features": matrix.shape[1], "bias": True}
    _write_config(folder, {**sizes, "activation_function": "torch.nn.modules.linear.Identity"})
    tensors = {"linear.weight": matrix.T, "linear.bias": offset}
    wide = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    save_file(wide, folder / "model.safetensors")


def _describe_prompts(export: Export) -> dict[str, Any]:
    """Return the model's prompts with those of the store; that of its rows is the default."""
    prompts = {**export.files.modules.prompts, DOCUMENT: export.space.prompt}
    default = DOCUMENT if export.space.prompt else None
    if export.query_prompt is not None:
        prompts[QUERY] = export.query_prompt
    similarity = next(name for name, metric in METRICS.items() if metric == export.metric)
    return {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": similarity}


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    folder.mkdir()
    _write_json(folder / "config.json", config)


def _edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file, which may be missing; the value None removes a key."""
    config = {**read_json_if_there(path), **changes}
    for key, value in changes.items():
        if value is None:
            del config[key]
    if path.is_file():
        os.chmod(path, 0o644)  # packages are installed read-only
    _write_json(path, config)


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
