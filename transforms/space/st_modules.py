"""Settings of a sentence-transformers directory: pooling, layers after it, prompts and lengths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any, NoReturn

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.space.json_files import (
    read_fields,
    read_json,
    read_json_if_there,
    read_known_fields,
)
from sentence_beam.transforms.space.st_configs import (
    SENTENCE_TRANSFORMER,
    CnnHeadConfig,
    ModuleConfig,
    PoolingConfig,
    RouterConfig,
    SentenceTransformersConfig,
    TokenizerKwargs,
    TransformerConfig,
    Truncation,
    read_width,
)
from sentence_beam.transforms.space.st_layers import (
    CNN_HEAD,
    LAYERS_AFTER,
    POOLED,
    StLayer,
    read_layers,
)
from sentence_beam.transforms.space.whole_model import make_cross_encoder_error

_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_ROUTERS = ("Router", "Asym")
_FIRST = ("Transformer", "StaticEmbedding")
_BETWEEN = ("WeightedLayerPooling", "CNN", "LSTM")
_KNOWN = (*_FIRST, *_ROUTERS, *_BETWEEN, "Pooling", *LAYERS_AFTER)
# Names that sentence-transformers 0.x had for Transformer, one for each family.
_OLD_PACKAGE = "sentence_transformers.models"
_OLD_TRANSFORMERS = frozenset(
    ("ALBERT", "BERT", "CamemBERT", "DistilBERT", "RoBERTa", "T5", "XLMRoBERTa", "XLNet")
)
# Packages of sentence-transformers whose modules have these names too, but make no single vector.
_OTHER_ENCODERS = ("cross_encoder", "multi_vector_encoder", "sparse_encoder")
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

    `pooling` is None if the directory names no pooling and is no causal language model.
    `normalize`: the last step normalises. `static`: a table of token embeddings replaces the
    transformer. `mix` and then `tokens` precede the pooling. `cnn` is the folder of the CNN head.
    `routes` are the names of all routes, `route` is the one of these modules.
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
                f"the model's similarity is {self.similarity}, which no index has; say"
                f" {cite('metric')}"
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


def read_modules(root: Path, route: str) -> StModules:
    """Read `modules.json` and the files that it names; of several routes, the modules of one.

    Raises `OptionError` for a module, setting or route that is missing or not supported.
    """
    modules, routed = _follow_route(root, _list_modules(root), route)
    kind, folder = modules[0] if modules else ("Transformer", root)
    if kind not in _FIRST:
        raise OptionError(
            f"{root / 'modules.json'}: the first module is {kind}, not {' or '.join(_FIRST)}"
        )
    layers = read_layers(root, modules)
    if kind == "StaticEmbedding":
        _refuse_pooling_of_rows(root, modules)
        settings = {"static": True, "pooling": ("static",), **_read_static_settings(folder)}
    else:
        settings = {**_read_transformer_settings(folder), **_read_pooling(root, modules)}
    transformer = folder.relative_to(root).as_posix() if folder != root else ""
    return StModules(transformer=transformer, **routed, **settings, **layers, **_read_prompts(root))


def read_static(root: Path, normalize: bool) -> StModules:
    """Return the modules of a table of token embeddings that has no modules.json."""
    settings = {**_read_static_settings(root), **_read_prompts(root)}
    return StModules(static=True, pooling=("static",), normalize=normalize, **settings)


def _list_modules(root: Path) -> list[tuple[str, Path]]:
    """Return kind and folder of each module in modules.json; none if the file is missing.

    Raises `OptionError` for an empty list, a name that two modules have, an unknown module and a
    path that is not below `root`.
    """
    path = root / "modules.json"
    if not path.exists():
        return []
    entries = read_entries(path)
    if not entries:
        raise OptionError(f"{path} lists no module; fetch the model again")
    names = [entry.name for entry in entries if entry.name]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"{path}: two modules have the name {twice!r}; rename one")
    return [
        (_read_kind(entry.type, path), _find_folder(root, entry.path, path)) for entry in entries
    ]


def read_entries(path: Path) -> list[ModuleConfig]:
    """Return the entries of a modules.json. Raises `OptionError` for a damaged one."""
    return [read_fields(ModuleConfig, entry, path) for entry in read_json(path, list)]


def _find_folder(root: Path, place: str, path: Path) -> Path:
    """Return a module's folder; a backslash separates folders, too.

    Raises `OptionError`, which names the file at `path`, for a place that is not below `root`.
    """
    parts = PureWindowsPath(place)
    if parts.anchor or ".." in parts.parts or "\0" in place:
        raise OptionError(f"{path}: path {place!r} leaves the model's folder; correct it")
    return root / parts.as_posix()


def _follow_route(
    root: Path, modules: list[tuple[str, Path]], route: str
) -> tuple[list[tuple[str, Path]], dict[str, Any]]:
    """Replace a router by the modules of one route; return also the fields `routes` and `route`."""
    routers = [place for place, (kind, _) in enumerate(modules) if kind in _ROUTERS]
    if not routers:
        return modules, {}
    if len(routers) > 1:
        _refuse_second_router(root)
    place = routers[0]
    folder = modules[place][1]
    path = folder / "router_config.json"
    if not read_json_if_there(path):
        path = folder / "config.json"
    config = read_fields(RouterConfig, read_json(path), path)
    structure = config.structure
    name = _choose_route(path, config, route)
    own = []
    for module in structure[name]:
        if module not in config.types:
            raise OptionError(f"{path}: types lacks {module!r}; fetch the model again")
        own.append((_read_kind(config.types[module], path), _find_folder(folder, module, path)))
    if any(kind in _ROUTERS for kind, _ in own):
        _refuse_second_router(root)
    routed = {"routes": tuple(structure), "route": name}
    return [*modules[:place], *own, *modules[place + 1 :]], routed


def _refuse_second_router(root: Path) -> NoReturn:
    raise OptionError(f"{root / 'modules.json'}: more than one router is not supported")


def _choose_route(path: Path, config: RouterConfig, route: str) -> str:
    """Return the route of texts for a task, by the rules of sentence-transformers."""
    mappings = config.parameters.get("route_mappings") or {}
    if not isinstance(mappings, dict):
        raise OptionError(f"{path}: parameters.route_mappings is not an object; correct it")
    mapped = [
        mappings.get(str(key))
        for key in ((route, "text"), (route, None), (None, "text"), (None, None))
    ]
    for name in (*mapped, route, *_ALSO.get(route, ()), "text"):
        if isinstance(name, str) and name in config.structure:
            return name
    routes = ", ".join(config.structure)
    raise OptionError(f"{path}: it has no route for {route!r}; its routes: {routes}")


def _read_kind(name: str, path: Path) -> str:
    """Return the class of a module. Raises `OptionError`, with the file's path, for another one."""
    package, _, kind = name.rpartition(".")
    if (package, kind) == ("modeling_cnn", CNN_HEAD):
        return kind
    if not package.startswith("sentence_transformers."):
        raise OptionError(
            f"{path}: module {name!r} is code of its own, which is never run; use another model"
        )
    if package == _OLD_PACKAGE and kind in _OLD_TRANSFORMERS:
        raise OptionError(
            f"{path}: module {name!r} is of sentence-transformers 0.x; write"
            f" {_OLD_PACKAGE}.Transformer in its place"
        )
    if kind not in _KNOWN or package.split(".")[1] in _OTHER_ENCODERS:
        raise OptionError(f"{path}: module {name!r} is none of {', '.join(_KNOWN)}")
    return kind


def _read_pooling(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """Return the fields for the pooling: a CNN head, or the modes of a Pooling module."""
    kinds = [kind for kind, _ in modules]
    if CNN_HEAD in kinds:
        if kinds.index(CNN_HEAD) != 1 or "Pooling" in kinds:
            raise OptionError(
                f"{root / 'modules.json'}: {CNN_HEAD} is supported behind Transformer alone"
            )
        path = modules[1][1] / "config.json"
        read_known_fields(CnnHeadConfig, read_json(path), path)
        return {"pooling": ("cnn",), "cnn": modules[1][1]}
    return _read_pooling_modes(root, modules)


def _read_pooling_modes(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    folders = [folder for kind, folder in modules if kind == "Pooling"]
    if not folders:
        if not modules:
            return {}
        raise OptionError(
            f"{root / 'modules.json'} lists no Pooling module behind Transformer; add one"
        )
    path = folders[0] / "config.json"
    values = read_json(path)
    config = read_known_fields(PoolingConfig, values, path)
    names = _list_pooling_names(values, config)
    unknown = [name for name in names if name not in POOLING_MODES]
    if unknown:
        raise OptionError(
            f"{path}: pooling mode {unknown[0]!r} is not supported; use {', '.join(POOLING_MODES)}"
        )
    read_width(config, path)
    modes = tuple(POOLING_MODES[name] for name in names)
    return {"pooling": modes, "include_prompt": config.include_prompt}


def _list_pooling_names(values: Mapping[str, Any], config: PoolingConfig) -> tuple[str, ...]:
    """Return the names of the modes in a Pooling module's config, by default mean."""
    if "pooling_mode" in values:
        return config.pooling_mode
    names = tuple(mode for key, mode in _BOOLEANS.items() if getattr(config, key))
    return names or ("mean",)


def find_transformer_config(folder: Path) -> Path:
    """Return the path of a Transformer module's settings; the file may be missing."""
    paths = [folder / name for name in _TRANSFORMER_CONFIGS]
    return next((path for path in paths if read_json_if_there(path)), paths[0])


def _refuse_pooling_of_rows(root: Path, modules: list[tuple[str, Path]]) -> None:
    """Raise OptionError for a pooling behind StaticEmbedding, which is one already."""
    if any(kind in POOLED for kind, _ in modules):
        raise OptionError(
            f"{root / 'modules.json'}: a pooling behind StaticEmbedding is not supported"
        )


def _read_static_settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer.json"
    truncation = read_json_if_there(path).get("truncation")
    if truncation is None:
        return {}
    if not isinstance(truncation, dict):
        raise OptionError(f"{path}: truncation is not an object; fetch the model again")
    return {"max_tokens": read_fields(Truncation, truncation, path).max_length}


def _read_transformer_settings(folder: Path) -> dict[str, Any]:
    path = find_transformer_config(folder)
    config = read_known_fields(TransformerConfig, read_json_if_there(path), path)
    if config.transformer_task == "sequence-classification":
        raise make_cross_encoder_error(path)
    if config.unsupported:
        raise OptionError(f"{path}: {config.unsupported} is not supported; use another model")
    tokenizer = config.processor_kwargs or config.tokenizer_args
    max_tokens = read_fields(TokenizerKwargs, tokenizer, path).model_max_length
    return {
        "max_tokens": max_tokens or config.max_seq_length,
        "lower_case": bool(config.do_lower_case),
    }


def _read_prompts(root: Path) -> dict[str, Any]:
    path = root / "config_sentence_transformers.json"
    config = read_fields(SentenceTransformersConfig, read_json_if_there(path), path)
    if config.model_type != SENTENCE_TRANSFORMER:
        raise OptionError(
            f"{path}: the model is a {config.model_type}, which gives no single vector of a text;"
            f" use a {SENTENCE_TRANSFORMER}"
        )
    prompts = {name: text or "" for name, text in config.prompts.items()}
    default = config.default_prompt_name
    if default is not None and default not in prompts:
        raise OptionError(
            f"{root}: default_prompt_name {default!r} is not among its prompts"
            f" ({', '.join(prompts)})"
        )
    return {
        "prompts": prompts,
        "default_prompt": default,
        "truncate_dim": config.truncate_dim,
        "similarity": config.similarity_fn_name,
    }
