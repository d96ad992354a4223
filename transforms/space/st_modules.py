"""The settings in a sentence-transformers directory: pooling, dense layers, normalisation, prompts,
lengths.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transforms.base.errors import OptionError

_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_ROUTERS = ("Router", "Asym")
_FIRST = ("Transformer", "StaticEmbedding")
_BETWEEN = ("WeightedLayerPooling", "CNN", "LSTM")
# ours, by its name alone: the code beside it is for sentence-transformers and is never run here
_CNN_HEAD = "CNN003"
_POOLED = ("Pooling", _CNN_HEAD)
_AFTER = ("Dense", "LayerNorm", "Normalize", "Dropout")
_KNOWN = (*_FIRST, *_ROUTERS, *_BETWEEN, "Pooling", *_AFTER)
DOCUMENT, QUERY = "document", "query"
_ALSO = {DOCUMENT: ("doc", "passage")}  # what older models call the route
POOLING_MODES = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-len",
    "weightedmean": "weighted-mean",
    "lasttoken": "last-token",
}
# The older form: one boolean a mode, joined in this order.
_BOOLEANS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# What a model's vectors were trained to be compared by, as sentence-transformers names it -> the
# index's metric.
METRICS = {"cosine": "cosine", "dot": "ip", "dot_product": "ip", "euclidean": "l2"}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")


@dataclass(frozen=True)
class StLayer:
    """One module with its parameters and its folder: `dense`, `layer-norm` or `normalize`, which
    follow the pooling, or `weighted-layers`, `st-cnn` or `st-lstm`, which go before it; of these
    two `dim` is the width they give."""

    kind: str
    folder: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StModules:
    """The modules of a sentence-transformers directory; the defaults are those of a plain
    transformers directory.

    `pooling` is None where the directory names no pooling; `normalize` is whether the last step
    normalises. `static`: in place of a transformer there is a table of token embeddings. `mix` and
    then `tokens` go before the pooling; `cnn` is the folder of the CNN head; `routes` are the ways
    that texts can take, `route` the one that these modules are of.
    """

    transformer: str = ""
    static: bool = False
    mix: StLayer | None = None
    tokens: tuple[StLayer, ...] = ()
    cnn: Path | None = None
    routes: tuple[str, ...] = ()
    route: str | None = None
    pooling: tuple[str, ...] | None = None
    include_prompt: bool = True
    layers: tuple[StLayer, ...] = ()
    normalize: bool = False
    max_tokens: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    truncate_dim: int | None = None
    similarity: str | None = None

    @property
    def metric(self) -> str:
        """The metric that the model's vectors are meant for: ip, cosine or l2; cosine where it says
        nothing.

        Raises OptionError for a similarity that no index has.
        """
        if self.similarity is None:
            return "cosine"
        if self.similarity not in METRICS:
            raise OptionError(
                f"the model's similarity is {self.similarity}, which no index has; say --metric"
            )
        return METRICS[self.similarity]

    @property
    def query_prompt(self) -> str | None:
        """The model's own prompt for queries; None where it has none of that name."""
        return self.prompts.get("query")


def read_modules(root: Path, route: str = DOCUMENT) -> StModules:
    """The modules in `modules.json` and all it names, of a model with several routes those of this
    route.

    Raises `OptionError` for a module, setting or route that is not there or not supported.
    """
    listed = _load(root / "modules.json", [])
    modules = [(_kind(root, entry.get("type")), root / entry.get("path", "")) for entry in listed]
    modules, routed = _on_route(root, modules, route)
    kind, folder = modules[0] if modules else ("Transformer", root)
    if kind not in _FIRST:
        raise OptionError(
            f"{root / 'modules.json'}: the first module is {kind}, not {' or '.join(_FIRST)}"
        )
    static = kind == "StaticEmbedding"
    settings = (
        {"static": True, **_static_settings(folder)} if static else _transformer_settings(folder)
    )
    return StModules(
        transformer=folder.relative_to(root).as_posix() if folder != root else "",
        **routed,
        **settings,
        **({"pooling": ("static",)} if static else _pooling(root, modules)),
        **_layers(root, modules),
        **_prompts(root),
    )


def _on_route(
    root: Path, modules: list[tuple[str, Path]], route: str
) -> tuple[list[tuple[str, Path]], dict[str, Any]]:
    """The modules with those of one route in the place of a router, and the names of all routes and
    this one.
    """
    place = next((place for place, (kind, _) in enumerate(modules) if kind in _ROUTERS), None)
    if place is None:
        return modules, {}
    folder = modules[place][1]
    config: dict[str, Any] = _load(folder / "router_config.json", {}) or _load(
        folder / "config.json", {}
    )
    structure, types = config.get("structure", {}), config.get("types", {})
    name = _route_name(
        root, structure, config.get("parameters", {}).get("route_mappings") or {}, route
    )
    own = [(_kind(root, types.get(module)), folder / module) for module in structure[name]]
    if any(kind in _ROUTERS for kind, _ in [*own, *modules[place + 1 :]]):
        raise OptionError(f"{root / 'modules.json'}: more than one router is not supported")
    return [*modules[:place], *own, *modules[place + 1 :]], {
        "routes": tuple(structure),
        "route": name,
    }


def _route_name(
    root: Path, structure: Mapping[str, Any], mappings: Mapping[str, str], route: str
) -> str:
    """The route of texts for a task, found as sentence-transformers finds it."""
    mapped = [
        mappings.get(str(key))
        for key in ((route, "text"), (route, None), (None, "text"), (None, None))
    ]
    for name in (*mapped, route, *_ALSO.get(route, ()), "text"):
        if name in structure:
            return str(name)
    raise OptionError(f"{root}: it has no route for {route!r}; its routes: {', '.join(structure)}")


def _load(path: Path, default: Any) -> Any:
    if not path.is_file():
        return default
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is not valid JSON ({error}); fetch the model again") from None
    if not isinstance(value, type(default)):
        raise OptionError(
            f"{path} should hold a JSON {type(default).__name__}; fetch the model again"
        )
    return value


def _kind(root: Path, name: Any) -> str:
    package, _, kind = str(name).rpartition(".")
    ours = (package, kind) == ("modeling_cnn", _CNN_HEAD)
    if not ours and (kind not in _KNOWN or not package.startswith("sentence_transformers")):
        raise OptionError(
            f"{root / 'modules.json'}: module {name!r} is none of {', '.join(_KNOWN)}"
        )
    return kind


def _pooling(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    kinds = [kind for kind, _ in modules]
    if _CNN_HEAD in kinds:
        if kinds.index(_CNN_HEAD) != 1 or "Pooling" in kinds:
            raise OptionError(
                f"{root / 'modules.json'}: {_CNN_HEAD} is supported behind Transformer alone"
            )
        return {"pooling": ("cnn",), "cnn": modules[1][1]}
    folders = [folder for kind, folder in modules if kind == "Pooling"]
    if not folders:
        return {}
    path = folders[0] / "config.json"
    config = _load(path, {})
    names = (
        config.get("pooling_mode")
        or [mode for key, mode in _BOOLEANS.items() if config.get(key)]
        or ["mean"]
    )
    names = [names] if isinstance(names, str) else names
    unknown = [name for name in names if name not in POOLING_MODES]
    if unknown or len(folders) > 1:
        said = f"pooling mode {unknown[0]!r}" if unknown else "more than one Pooling module"
        raise OptionError(
            f"{path}: {said} is not supported; use one module with {', '.join(POOLING_MODES)}"
        )
    modes = tuple(POOLING_MODES[name] for name in names)
    return {"pooling": modes, "include_prompt": config.get("include_prompt", True)}


def _layers(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """What goes before and what follows the pooling; a last Normalize is the output's own
    normalisation.
    """
    pooled = next((place for place, (kind, _) in enumerate(modules) if kind in _POOLED), 0)
    before = [module for module in modules[1:pooled] if module[0] != "Dropout"]
    layers = [_layer(kind, folder) for kind, folder in modules[pooled + 1 :] if kind != "Dropout"]
    mix = None
    if before and before[0][0] == "WeightedLayerPooling":
        mix = _mix(modules[0][1], before.pop(0)[1])
    wrong = next((kind for kind, _ in before if kind not in _TOKEN_LAYERS), None)
    if wrong is not None or (before and modules[0][0] == "StaticEmbedding"):
        raise OptionError(
            f"{root / 'modules.json'}: {wrong or before[0][0]} between {modules[0][0]} and Pooling"
            " is not supported"
        )
    normalize = bool(layers) and layers[-1].kind == "normalize"
    tokens = tuple(_TOKEN_LAYERS[kind](folder) for kind, folder in before)
    return {
        "layers": tuple(layers[:-1] if normalize else layers),
        "normalize": normalize,
        "mix": mix,
        "tokens": tokens,
    }


def _mix(transformer: Path, folder: Path) -> StLayer | None:
    """Layers averaged with learnt weights; sentence-transformers leaves the last one where they are
    not put out.
    """
    if not _load(transformer / "config.json", {}).get("output_hidden_states"):
        return None
    return StLayer(
        "weighted-layers",
        folder,
        {"start": _load(folder / "config.json", {}).get("layer_start", 4)},
    )


def _cnn(folder: Path) -> StLayer:
    """Convolutions over tokens that keep their number, so that a text has them without its batch's
    padding.
    """
    path = folder / "cnn_config.json"
    config: dict[str, Any] = _load(path, {})
    kernels, strides = config.get("kernel_sizes"), config.get("stride_sizes")
    if (
        not isinstance(kernels, list)
        or not kernels
        or any(size not in range(1, 100, 2) for size in kernels)
    ):
        raise OptionError(
            f"{path}: CNN is supported with kernel_sizes that are odd, which give one state a token"
        )
    if strides not in (None, [1] * len(kernels)):
        raise OptionError(
            f"{path}: CNN is supported with stride_sizes of 1, which give one state a token"
        )
    width = _whole(path, config, "in_embedding_dimension", "in_word_embedding_dimension")
    channels = _whole(path, config, "out_channels")
    sizes = {"width": width, "channels": channels, "kernels": kernels}
    return StLayer("st-cnn", folder, {**sizes, "dim": channels * len(kernels)})


def _lstm(folder: Path) -> StLayer:
    """An LSTM over the tokens of a text."""
    path = folder / "lstm_config.json"
    config: dict[str, Any] = _load(path, {})
    width = _whole(path, config, "embedding_dimension", "word_embedding_dimension")
    hidden, depth = (
        _whole(path, config, "hidden_dim"),
        _whole(path, {"num_layers": 1, **config}, "num_layers"),
    )
    both = bool(config.get("bidirectional", True))
    sizes = {"width": width, "hidden": hidden, "depth": depth, "both": both}
    return StLayer("st-lstm", folder, {**sizes, "dim": hidden * (2 if both else 1)})


def _whole(path: Path, config: Mapping[str, Any], *names: str) -> int:
    """The number that a file has under one of these names."""
    found = next((config[name] for name in names if name in config), None)
    if not isinstance(found, int) or found < 1:
        raise OptionError(
            f"{path}: {names[0]} is {found!r}, not a whole number from 1; fetch the model again"
        )
    return found


_TOKEN_LAYERS = {"CNN": _cnn, "LSTM": _lstm}


def _layer(kind: str, folder: Path) -> StLayer:
    if kind not in _AFTER:
        raise OptionError(f"{folder}: {kind} is not supported in this place")
    config = _load(folder / "config.json", {})
    names = (config.get("module_input_name"), config.get("module_output_name"))
    if any(name not in (None, "sentence_embedding") for name in names):
        raise OptionError(
            f"{folder / 'config.json'}: {kind} on {names[0]!r} must be on sentence_embedding"
        )
    if kind == "Dense":
        return StLayer("dense", folder, _dense(folder, config))
    if kind == "LayerNorm":
        return StLayer("layer-norm", folder, {"dim": config["dimension"]})
    return StLayer("normalize", folder)


def _dense(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    package, _, activation = str(
        config.get("activation_function", "torch.nn.modules.activation.Tanh")
    ).rpartition(".")
    if activation not in ACTIVATIONS or not package.startswith("torch.nn"):
        said = config["activation_function"]
        raise OptionError(
            f"{folder / 'config.json'}: activation {said!r} is none of {', '.join(ACTIVATIONS)}"
        )
    if config.get("use_residual"):
        raise OptionError(f"{folder / 'config.json'}: use_residual is not supported")
    sizes = {key: config[key] for key in ("in_features", "out_features")}
    return {**sizes, "bias": config.get("bias", True), "activation": activation}


def transformer_config(folder: Path) -> Path:
    """The file with a Transformer module's settings, there or not."""
    paths = [folder / name for name in _TRANSFORMER_CONFIGS]
    return next((path for path in paths if path.is_file()), paths[0])


def _static_settings(folder: Path) -> dict[str, Any]:
    truncation = _load(folder / "tokenizer.json", {}).get("truncation") or {}
    return {"max_tokens": truncation.get("max_length")}


def _transformer_settings(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = _load(transformer_config(folder), {})
    if (
        config.get("query_expansion")
        or config.get("transformer_task", "feature-extraction") != "feature-extraction"
    ):
        raise OptionError(
            f"{folder}: only a Transformer module for feature-extraction is supported"
        )
    tokenizer = config.get("processor_kwargs") or config.get("tokenizer_args") or {}
    max_tokens = tokenizer.get("model_max_length", config.get("max_seq_length"))
    return {"max_tokens": max_tokens, "lower_case": bool(config.get("do_lower_case", False))}


def _prompts(root: Path) -> dict[str, Any]:
    config = _load(root / "config_sentence_transformers.json", {})
    prompts = {name: text or "" for name, text in (config.get("prompts") or {}).items()}
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise OptionError(
            f"{root}: default_prompt_name {default!r} is not among its prompts"
            f" ({', '.join(prompts)})"
        )
    known = {
        "prompts": prompts,
        "default_prompt": default,
        "truncate_dim": config.get("truncate_dim"),
    }
    return {**known, "similarity": config.get("similarity_fn_name")}
