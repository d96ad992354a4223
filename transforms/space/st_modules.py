"""Settings of a sentence-transformers directory: pooling, layers after it, prompts and lengths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transforms.base.errors import OptionError
from transforms.space.st_layers import CNN_HEAD, LAYERS_AFTER, StLayer, load_json, read_layers
from transforms.space.whole_model import cross_encoder_error

_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_ROUTERS = ("Router", "Asym")
_FIRST = ("Transformer", "StaticEmbedding")
_BETWEEN = ("WeightedLayerPooling", "CNN", "LSTM")
_KNOWN = (*_FIRST, *_ROUTERS, *_BETWEEN, "Pooling", *LAYERS_AFTER)
DOCUMENT = "document"
QUERY = "query"
_ALSO = {DOCUMENT: ("doc", "passage")}  # names of the route in older models
_LIKE_DOCUMENT = ("passage", "corpus", "doc")  # prompts for documents by names that are not tried
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
    def document_prompt(self) -> str:
        """The prompt of sentence-transformers' `encode_document`.

        It gives every model a prompt `document`, empty if the directory has none. Therefore its
        other names (`passage`, `corpus`) and the default prompt never count.
        """
        return self.prompts.get(DOCUMENT, "")

    @property
    def query_prompt(self) -> str | None:
        """The prompt of sentence-transformers' `encode_query`, None if the directory has none."""
        return self.prompts.get(QUERY)

    @property
    def passed_over(self) -> str | None:
        """The name of a prompt that seems meant for documents but is not theirs, or None."""
        if self.document_prompt:
            return None
        names = (*_LIKE_DOCUMENT, self.default_prompt or "")
        return next((name for name in names if name != QUERY and self.prompts.get(name)), None)


def read_modules(root: Path, route: str = DOCUMENT) -> StModules:
    """Read `modules.json` and the files that it names; of several routes, the modules of one.

    Raises `OptionError` for a module, setting or route that is missing or not supported.
    """
    listed = load_json(root / "modules.json", [])
    modules = [(_kind(root, entry.get("type")), root / entry.get("path", "")) for entry in listed]
    modules, routed = _follow_route(root, modules, route)
    kind = "Transformer"
    folder = root
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
        **read_layers(root, modules),
        **_prompts(root),
    )


def read_static(root: Path, normalize: bool) -> StModules:
    """Return the modules of a table of token embeddings that has no modules.json."""
    return StModules(
        static=True,
        pooling=("static",),
        normalize=normalize,
        **_static_settings(root),
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
    config: dict[str, Any] = load_json(folder / "router_config.json", {})
    if not config:
        config = load_json(folder / "config.json", {})
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


def _kind(root: Path, name: Any) -> str:
    package, _, kind = str(name).rpartition(".")
    ours = (package, kind) == ("modeling_cnn", CNN_HEAD)
    if not ours and (kind not in _KNOWN or not package.startswith("sentence_transformers")):
        raise OptionError(
            f"{root / 'modules.json'}: module {name!r} is none of {', '.join(_KNOWN)}"
        )
    return kind


def _pooling(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """Return the fields for the pooling: a CNN head, or the modes of a Pooling module."""
    kinds = [kind for kind, _ in modules]
    if CNN_HEAD in kinds:
        if kinds.index(CNN_HEAD) != 1 or "Pooling" in kinds:
            raise OptionError(
                f"{root / 'modules.json'}: {CNN_HEAD} is supported behind Transformer alone"
            )
        return {"pooling": ("cnn",), "cnn": modules[1][1]}
    return _pooling_modes(modules)


def _pooling_modes(modules: list[tuple[str, Path]]) -> dict[str, Any]:
    folders = [folder for kind, folder in modules if kind == "Pooling"]
    if not folders:
        return {}
    path = folders[0] / "config.json"
    config = load_json(path, {})
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


def transformer_config(folder: Path) -> Path:
    """Return the path of a Transformer module's settings; the file may be missing."""
    paths = [folder / name for name in _TRANSFORMER_CONFIGS]
    return next((path for path in paths if path.is_file()), paths[0])


def _static_settings(folder: Path) -> dict[str, Any]:
    truncation = load_json(folder / "tokenizer.json", {}).get("truncation") or {}
    return {"max_tokens": truncation.get("max_length")}


def _transformer_settings(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = load_json(transformer_config(folder), {})
    if config.get("transformer_task") == "sequence-classification":
        raise cross_encoder_error(transformer_config(folder))
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
    config = load_json(root / "config_sentence_transformers.json", {})
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
