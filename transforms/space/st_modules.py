"""Settings of a sentence-transformers directory: pooling, layers after it, prompts and lengths."""

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
# The head that `train` writes, known by its name; the code beside it is never run here.
_CNN_HEAD = "CNN003"
_POOLED = ("Pooling", _CNN_HEAD)
_AFTER = ("Dense", "LayerNorm", "Normalize", "Dropout")
_KNOWN = (*_FIRST, *_ROUTERS, *_BETWEEN, "Pooling", *_AFTER)
DOCUMENT = "document"
QUERY = "query"
_ALSO = {DOCUMENT: ("doc", "passage")}  # names of the route in older models
POOLING_MODES = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-len",
    "weightedmean": "weighted-mean",
    "lasttoken": "last-token",
}
# The older format: one boolean a mode, joined in this order.
_BOOLEANS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# The model's similarity, as sentence-transformers names it -> the metric of an index.
METRICS = {"cosine": "cosine", "dot": "ip", "dot_product": "ip", "euclidean": "l2"}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")


@dataclass(frozen=True)
class StLayer:
    """A module with its parameters and its folder.

    `dense`, `layer-norm` and `normalize` follow the pooling; `weighted-layers`, `st-cnn` and
    `st-lstm` precede it. The parameter `dim` of the last two is the width of their output.
    """

    kind: str
    folder: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StModules:
    """The modules of a sentence-transformers directory; the defaults fit plain transformers ones.

    `pooling` is None if the directory names no pooling; `normalize`: the last step normalises.
    `static`: a table of token embeddings replaces the transformer. `mix` and then `tokens` precede
    the pooling. `cnn` is the folder of the CNN head. `routes` are the names of all routes, `route`
    is the one of these modules.
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
        """The metric for the model's vectors: ip, cosine or l2; cosine if the model names none.

        Raises OptionError for a similarity that no index supports.
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
        """The model's own prompt for queries, None if it has none."""
        return self.prompts.get("query")


def read_modules(root: Path, route: str = DOCUMENT) -> StModules:
    """Read `modules.json` and the files that it names; of several routes, the modules of one.

    Raises `OptionError` for a module, setting or route that is missing or not supported.
    """
    listed = _load(root / "modules.json", [])
    modules = [(_kind(root, entry.get("type")), root / entry.get("path", "")) for entry in listed]
    modules, routed = _follow_route(root, modules, route)
    kind, folder = "Transformer", root
    if modules:
        kind, folder = modules[0]
    if kind not in _FIRST:
        raise OptionError(
            f"{root / 'modules.json'}: the first module is {kind}, not {' or '.join(_FIRST)}"
        )
    if kind == "StaticEmbedding":
        settings = {"static": True, "pooling": ("static",), **_static_settings(folder)}
    else:
        settings = {**_transformer_settings(folder), **_pooling(root, modules)}
    transformer = ""
    if folder != root:
        transformer = folder.relative_to(root).as_posix()
    return StModules(
        transformer=transformer,
        **routed,
        **settings,
        **_layers(root, modules),
        **_prompts(root),
    )


def _follow_route(
    root: Path, modules: list[tuple[str, Path]], route: str
) -> tuple[list[tuple[str, Path]], dict[str, Any]]:
    """Replace a router by the modules of one route; return also the fields `routes` and `route`."""
    routers = [place for place, (kind, _) in enumerate(modules) if kind in _ROUTERS]
    if not routers:
        return modules, {}
    if len(routers) > 1:
        raise _two_routers(root)
    place = routers[0]
    folder = modules[place][1]
    config: dict[str, Any] = _load(folder / "router_config.json", {})
    if not config:
        config = _load(folder / "config.json", {})
    structure = config.get("structure", {})
    types = config.get("types", {})
    mappings = config.get("parameters", {}).get("route_mappings") or {}
    name = _route_name(root, structure, mappings, route)
    own = [(_kind(root, types.get(module)), folder / module) for module in structure[name]]
    if any(kind in _ROUTERS for kind, _ in own):
        raise _two_routers(root)
    routed = {"routes": tuple(structure), "route": name}
    return [*modules[:place], *own, *modules[place + 1 :]], routed


def _two_routers(root: Path) -> OptionError:
    return OptionError(f"{root / 'modules.json'}: more than one router is not supported")


def _route_name(
    root: Path, structure: Mapping[str, Any], mappings: Mapping[str, str], route: str
) -> str:
    """Return the route of texts for a task, by the rules of sentence-transformers."""
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
    names = _pooling_names(config)
    unknown = [name for name in names if name not in POOLING_MODES]
    problem = ""
    if unknown:
        problem = f"pooling mode {unknown[0]!r}"
    elif len(folders) > 1:
        problem = "more than one Pooling module"
    if problem:
        raise OptionError(
            f"{path}: {problem} is not supported; use one module with {', '.join(POOLING_MODES)}"
        )
    modes = tuple(POOLING_MODES[name] for name in names)
    return {"pooling": modes, "include_prompt": config.get("include_prompt", True)}


def _pooling_names(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the modes in a Pooling module's config, by default mean."""
    modes = config.get("pooling_mode")
    if not modes:
        modes = [mode for key, mode in _BOOLEANS.items() if config.get(key)]
    if isinstance(modes, str):
        return [modes]
    return modes or ["mean"]


def _layers(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """Return the fields for the layers before and after the pooling.

    A last Normalize becomes the field `normalize`.
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
    if normalize:
        layers.pop()
    tokens = tuple(_TOKEN_LAYERS[kind](folder) for kind, folder in before)
    return {"layers": tuple(layers), "normalize": normalize, "mix": mix, "tokens": tokens}


def _mix(transformer: Path, folder: Path) -> StLayer | None:
    """Return the weighted mean of layers; None if the transformer does not output its layers.

    sentence-transformers then uses the last layer alone.
    """
    if not _load(transformer / "config.json", {}).get("output_hidden_states"):
        return None
    start = _load(folder / "config.json", {}).get("layer_start", 4)
    return StLayer("weighted-layers", folder, {"start": start})


def _cnn(folder: Path) -> StLayer:
    """Return convolutions over tokens that give one state a token.

    Other convolutions would depend on the padding of a text's batch.
    """
    path = folder / "cnn_config.json"
    config: dict[str, Any] = _load(path, {})
    kernels = config.get("kernel_sizes")
    is_odd = isinstance(kernels, list) and all(size in range(1, 100, 2) for size in kernels)
    if not kernels or not is_odd:
        raise OptionError(
            f"{path}: CNN is supported with kernel_sizes that are odd, which give one state a token"
        )
    if config.get("stride_sizes") not in (None, [1] * len(kernels)):
        raise OptionError(
            f"{path}: CNN is supported with stride_sizes of 1, which give one state a token"
        )
    width = _whole(path, config, "in_embedding_dimension", "in_word_embedding_dimension")
    channels = _whole(path, config, "out_channels")
    sizes = {"width": width, "channels": channels, "kernels": kernels}
    return StLayer("st-cnn", folder, {**sizes, "dim": channels * len(kernels)})


def _lstm(folder: Path) -> StLayer:
    """Return an LSTM over the tokens of a text."""
    path = folder / "lstm_config.json"
    config: dict[str, Any] = _load(path, {})
    width = _whole(path, config, "embedding_dimension", "word_embedding_dimension")
    hidden = _whole(path, config, "hidden_dim")
    depth = _whole(path, {"num_layers": 1, **config}, "num_layers")
    both = bool(config.get("bidirectional", True))
    sizes = {"width": width, "hidden": hidden, "depth": depth, "both": both}
    directions = 2 if both else 1
    return StLayer("st-lstm", folder, {**sizes, "dim": hidden * directions})


def _whole(path: Path, config: Mapping[str, Any], *names: str) -> int:
    """Return the positive integer that a config has under one of these names."""
    value = next((config[name] for name in names if name in config), None)
    if not isinstance(value, int) or value < 1:
        raise OptionError(
            f"{path}: {names[0]} is {value!r}, not a whole number from 1; fetch the model again"
        )
    return value


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
    """Return the path of a Transformer module's settings; the file may be missing."""
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
