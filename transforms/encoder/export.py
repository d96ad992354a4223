"""Writing an encoder as a folder that `Encoder.load` reads, and sentence-transformers where it has
such a pooler.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from transforms.calibration import Calibration, parse_calibration
from transforms.calibration.affine import affine_map
from transforms.calibration.methods import AFFINE
from transforms.space import ModelFiles, PoolerSpec, Space, parse_pooler
from transforms.space.exported import EXPORTED, Exported
from transforms.space.spec import PoolerPart
from transforms.space.st_modules import METRICS, POOLING_MODES, transformer_config

MODEL, CALIBRATION = "model", "calibration"
_COPIED = (".json", ".safetensors", ".txt", ".model", ".jinja")
_ST = "sentence_transformers.models."
_KINDS = {"dense": "Dense", "layer-norm": "LayerNorm", "normalize": "Normalize"}
_NAMES = {ours: theirs for theirs, ours in POOLING_MODES.items()}


@dataclass(frozen=True)
class Export:
    """The encoder to export: a model's files, the space of its vectors, the pooler's SPEC, and the
    calibration.

    `query_prompt` is the store's, if it remembers one, `metric` that by which its vectors are
    compared.
    """

    files: ModelFiles
    space: Space
    pooler: str
    calibration: Calibration | None
    query_prompt: str | None = None
    metric: str = "cosine"


def write_export(export: Export, folder: Path) -> str | None:
    """Write the encoder into an empty local folder; returns why sentence-transformers cannot load
    it, or None.
    """
    _copy_model(export, folder / MODEL)
    if export.calibration is not None:
        (folder / CALIBRATION).mkdir()
        for name, data in export.calibration.to_files().items():
            (folder / CALIBRATION / name).write_bytes(data)
    (folder / EXPORTED).write_bytes(_describe(export, folder).to_bytes())
    unfit = why_not_sentence_transformers(export)
    if unfit is None:
        _write_modules(export, folder)
    return unfit


def why_not_sentence_transformers(export: Export) -> str | None:
    """The reason for which sentence-transformers cannot make these vectors; None where it can."""
    modules = export.files.modules
    if (
        modules.routes
        or modules.static
        or any(layers in export.space.pooler for layers in ("mix", "tokens", "cnn"))
    ):
        return (
            "its modules are more than a transformer and a pooling; the folder in `model` is the"
            " model's own"
        )
    for part in PoolerSpec.from_json(export.space.pooler).parts:
        options = dict(part.options)
        ranks = ("counted", "attended") if options.get("count") == "all" else ("attended",)
        usual = options.get("layer") == "last" and options.get("rank", "attended") in ranks
        if part.name not in _NAMES or not usual or options["count"] not in ("all", "no-prompt"):
            return f"it has no pooler {part}"
    if (
        export.calibration is not None
        and parse_calibration(export.calibration.info["method"]).name not in AFFINE
    ):
        return f"it has no calibration {export.calibration.info['method']}"
    return None


def _copy_model(export: Export, folder: Path) -> None:
    """Copy the model's directory, with float32 and the space's number of tokens in its
    configuration.
    """

    def unwanted(_: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if "." in name and not name.endswith(_COPIED) and name not in own_code
        }

    # of the CNN head, for sentence-transformers; nothing here runs it
    own_code = ("modeling_cnn.py",) if export.files.has_cnn_head else ()

    shutil.copytree(export.files.root, folder, ignore=unwanted)
    transformer = folder / export.files.modules.transformer
    if export.files.modules.static:
        return
    _edit(transformer / "config.json", dtype="float32", torch_dtype=None)
    if export.space.max_tokens is not None:
        path = transformer_config(transformer)
        said = _read(path)
        limits = {name: {**said[name], "model_max_length": export.space.max_tokens}
                  for name in ("processor_kwargs", "tokenizer_args") if said.get(name)}  # fmt: skip
        _edit(path, max_seq_length=export.space.max_tokens, **limits)


def _describe(export: Export, folder: Path) -> Exported:
    space, parts = export.space, parse_pooler(export.pooler).parts
    return Exported(
        model=MODEL,
        pooler=str(
            PoolerSpec(
                tuple(_with_table(part, folder, number) for number, part in enumerate(parts))
            )
        ),
        prompt=space.prompt,
        max_tokens=space.max_tokens,
        normalize=space.normalize,
        truncate_dim=space.truncate_dim,
        dtype=space.dtype,
        calibration=CALIBRATION if export.calibration else None,
    )


def _with_table(part: PoolerPart, folder: Path, number: int) -> PoolerPart:
    """The part with its token statistics copied into the folder, and named relative to it."""
    if part.table is None:
        return part
    shutil.copytree(part.table, folder / f"table-{number}")
    return part.replaced(table=f"table-{number}")


def _write_modules(export: Export, folder: Path) -> None:
    """Write the modules Transformer, Pooling, the model's own layers, Dense (calibrate, truncate)
    and Normalize.
    """
    files = export.files
    listed: list[dict[str, Any]] = []

    def add(kind: str, path: str) -> None:
        listed.append(
            {"idx": len(listed), "name": str(len(listed)), "path": path, "type": _ST + kind}
        )

    add("Transformer", "/".join(filter(None, (MODEL, files.modules.transformer))))
    add("Pooling", "1_Pooling")
    _write_config(folder / "1_Pooling", _pooling(export))
    for layer in files.modules.layers if export.space.pooler.get("then") else ():
        add(_KINDS[layer.kind], f"{MODEL}/{layer.folder.relative_to(files.root)}")
    if export.calibration is not None or export.space.truncate_dim is not None:
        add("Dense", "calibrated")
        _write_dense(folder / "calibrated", *_dense(export))
    if export.space.normalize:
        add("Normalize", "normalized")
        (folder / "normalized").mkdir()
    (folder / "modules.json").write_text(_json(listed), encoding="utf-8")
    (folder / "config_sentence_transformers.json").write_text(
        _json(_prompts(export)), encoding="utf-8"
    )


def _pooling(export: Export) -> dict[str, Any]:
    parts = PoolerSpec.from_json(export.space.pooler).parts
    said = {"include_prompt": parts[0].option("count") == "all"}
    modes = [_NAMES[part.name] for part in parts]
    return {"embedding_dimension": export.files.hidden, "pooling_mode": modes, **said}


def _dense(export: Export) -> tuple[np.ndarray, np.ndarray]:
    """The matrix [p, dim] and offset [dim], float64, that calibrate and truncate a pooled
    vector.
    """
    if export.calibration is None:
        layers = export.space.pooler.get("then")
        spec = PoolerSpec.from_json(export.space.pooler)
        width = (
            layers[-1]["dim"] if layers else spec.dim(export.files.hidden, export.files.embedding)
        )
        matrix, offset = np.eye(width), np.zeros(width)
    else:
        matrix, offset = affine_map(
            export.calibration.tensors, export.calibration.info["input_dim"]
        )
    return matrix[:, : export.space.dim], offset[: export.space.dim]


def _write_dense(folder: Path, matrix: np.ndarray, offset: np.ndarray) -> None:
    sizes = {"in_features": matrix.shape[0], "out_features": matrix.shape[1], "bias": True}
    _write_config(folder, {**sizes, "activation_function": "torch.nn.modules.linear.Identity"})
    tensors = {"linear.weight": matrix.T, "linear.bias": offset}
    wide = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    save_file(wide, folder / "model.safetensors")


def _prompts(export: Export) -> dict[str, Any]:
    """The model's prompts, with the one that the store's rows had as the default."""
    prompts, prompt = dict(export.files.modules.prompts), export.space.prompt
    default = None
    if prompt:
        default = next((name for name, text in prompts.items() if text == prompt), "document")
        prompts[default] = prompt
    if export.query_prompt is not None:
        prompts["query"] = export.query_prompt
    similarity = next(name for name, metric in METRICS.items() if metric == export.metric)
    return {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": similarity}


def _write_config(folder: Path, said: Mapping[str, Any]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(_json(said), encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file, which may be missing; the value None removes a key."""
    gone = {key for key, value in changes.items() if value is None}
    said = {key: value for key, value in {**_read(path), **changes}.items() if key not in gone}
    if path.is_file():
        os.chmod(path, 0o644)  # packages are installed read-only
    path.write_text(_json(said), encoding="utf-8")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
