"""Load from a model's folder: weights, layers after the pooling, and token statistics."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.encoder.bert_model import is_plain_bert, load_bert
from sentence_beam.transforms.encoder.weight_names import find_prefix
from sentence_beam.transforms.pooling.cnn import CnnNetwork
from sentence_beam.transforms.pooling.token_layers import Convolutions, Recurrent
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics
from sentence_beam.transforms.space.model_files import (
    STATIC_KEYS,
    ModelFiles,
    find_safetensors,
    read_safetensors_keys,
)
from sentence_beam.transforms.space.pooler_spec import PoolerSpec
from sentence_beam.transforms.space.st_layers import StLayer
from sentence_beam.transforms.space.token_table import read_table

_Module = TypeVar("_Module", bound=nn.Module)
_TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Encoder-decoders that need a text to decode beside the one to encode: only the encoder is run.
_WITH_DECODER = frozenset(
    ("blenderbot", "blenderbot-small", "longt5", "m2m_100", "marian", "nllb-moe", "pegasus")
    + ("pegasus_x", "prophetnet", "switch_transformers")
)
_ERROR_NAME = re.compile(r"\b\w+Error: ")  # before the cause, in errors of transformers
# Activations over a whole vector, which torch asks to name the dimension.
_ARGUMENTS = {name: {"dim": 1} for name in ("LogSoftmax", "Softmax", "Softmin")}
# Masks, positions and frequencies that old checkpoints hold and models now compute.
_COMPUTED = re.compile(r"\.(position_ids|inv_freq|masked_bias|attn\.bias|attention\.bias)$")


def load_model(
    files: ModelFiles, dtype: str, device: torch.device, states_alone: bool = False
) -> nn.Module:
    """Load the model in eval mode on `device`; of an encoder-decoder only the encoder.

    `states_alone`: only the states of layers are read, not the attention. BERT on a processor is
    then loaded without transformers.
    Raises `OptionError` if its weights are damaged, not finite or do not fit the architecture.
    """
    if files.modules.static:
        return StaticTable(files).to(device).eval()
    # for a damaged file, this error names it
    names = [key for path in files.weights for key in read_safetensors_keys(path)]
    if states_alone and device.type == "cpu" and is_plain_bert(files):
        bert = load_bert(files, _TORCH_DTYPES[dtype])
        _check_finite(files, bert)
        return bert.eval()
    model, report = _load_weights(files, dtype)
    prefix = find_prefix(names, _list_missing(report))
    if prefix is not None:
        model, report = _load_weights(files, dtype, prefix)
    _check_complete(files, model, report)
    if files.family in _WITH_DECODER:
        model = model.get_encoder()
    _check_finite(files, model)
    _disable_cache(model.config)
    return model.to(device).eval()


def _load_weights(
    files: ModelFiles, dtype: str, prefix: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Load a model by transformers; return it and the report on missing and unexpected keys.

    `prefix` is removed from the names of weights.
    """
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, AutoModel, AutoModelForTextEncoding

    config = load_config(files)
    renamed = {f"^{re.escape(prefix)}": ""} if prefix is not None else None
    try:
        with quiet_transformers():
            # T5 and its kin have a class without the decoder
            has_encoder = type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING
            kind: Any = AutoModelForTextEncoding if has_encoder else AutoModel
            return kind.from_pretrained(
                files.folder,
                config=config,
                dtype=_TORCH_DTYPES[dtype],
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                key_mapping=renamed,
                ignore_mismatched_sizes=True,  # `_check_complete` names the weight
            )
    # transformers raises any type for a damaged or unknown model
    except Exception as error:
        raise OptionError(
            f"{files.folder}: the model cannot be loaded ({describe_error(error)}); fetch it again"
        ) from None


def load_config(files: ModelFiles) -> Any:
    """Load a model's config.json by transformers. Raises OptionError if it cannot be."""
    from transformers import AutoConfig

    try:
        with quiet_transformers():
            return AutoConfig.from_pretrained(
                files.folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise OptionError(
            f"{files.folder / 'config.json'}: {describe_error(error)}; fetch the model again"
        ) from None


def describe_error(error: BaseException) -> str:
    """Return an error of transformers in one line; its second line often has the cause."""
    if isinstance(error, KeyError):
        return f"{error} is missing, or unknown to transformers"
    text = " ".join(_ERROR_NAME.sub("", str(error)).split())
    return text or first_line(error)


def _check_complete(files: ModelFiles, model: nn.Module, report: dict[str, Any]) -> None:
    """Raise OptionError for weights of other shapes, missing ones, and unused ones of a block."""
    for name, shape, wanted in sorted(report["mismatched_keys"])[:1]:
        raise OptionError(
            f"{files.folder}: the weights have {name} of {list(shape)}, config.json of"
            f" {list(wanted)}; fetch the model again"
        )
    missing = _list_missing(report)
    if missing:
        raise OptionError(
            f"{files.folder}: the weights lack {len(missing)} of the model's tensors, as"
            f" {missing[0]}, which would be random; fetch the model again"
        )
    unused = sorted(key for key in report["unexpected_keys"] if _is_in_block(model, key))
    if unused:
        raise OptionError(
            f"{files.folder}: the weights hold {unused[0]}, which this version of transformers "
            f"leaves out of {files.family}: its vectors would be others; use another model"
        )


def _list_missing(report: dict[str, Any]) -> list[str]:
    """Return the names of weights that a load has missed, except those of an unused pooler."""
    return sorted(key for key in report["missing_keys"] if "pooler" not in key)


class StaticTable(nn.Module):
    """The token embeddings of a StaticEmbedding module, or of model2vec, in float32."""

    config = None

    def __init__(self, files: ModelFiles) -> None:
        super().__init__()
        tensors = _load_tensors(files.weights[0])
        table = next(tensors[key] for key in STATIC_KEYS if key in tensors).float()
        if "mapping" in tensors:
            table = table[tensors["mapping"].long()]
        if "weights" in tensors:
            table = table * tensors["weights"].float()[:, None]
        self.embedding = nn.Embedding.from_pretrained(table)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table, as transformers' models return theirs."""
        return self.embedding


def load_mix(mix: StLayer) -> tuple[float, ...]:
    """Load the weights of the layers that are averaged before the pooling."""
    return tuple(_load_tensors(find_safetensors(mix.folder)[0])["layer_weights"].float().tolist())


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise OptionError(
            f"{path} is not a safetensors file ({first_line(error)}); fetch the model again"
        ) from None


def _disable_cache(config: Any) -> None:
    """Let a model keep no keys and values, which only generating text needs."""
    parts = [config]
    parts += [getattr(config, name, None) for name in type(config).sub_configs]
    for part in parts:
        if hasattr(part, "use_cache"):
            part.use_cache = False


def _is_in_block(model: nn.Module, key: str) -> bool:
    """Return whether a weight that was not loaded is inside one of the model's blocks.

    Not so heads above the blocks, blocks that config.json leaves out, the other half of an
    encoder-decoder, and tables that models now compute.
    """
    modules = dict(model.named_modules())
    place = key.removeprefix(f"{model.base_model_prefix}.")
    while place and place not in modules:
        place = place.rpartition(".")[0]
    in_block = any(part.isdigit() for part in place.split("."))
    return in_block and not isinstance(modules[place], nn.ModuleList) and not _COMPUTED.search(key)


def _check_finite(files: ModelFiles, model: Any) -> None:
    """Raise OptionError for NaN or infinity in weights.

    The embedding matrix may hold some, because a bad row spoils only a few texts.
    """
    try:
        embedding = model.get_input_embeddings().weight
    except (NotImplementedError, AttributeError):
        raise OptionError(
            f"{files.folder}: {files.family} has no token embeddings; use another model"
        ) from None
    for name, weight in model.named_parameters():
        if weight is embedding or "pooler" in name or bool(torch.isfinite(weight).all()):
            continue
        mend = "fetch the model again"
        if weight.dtype != torch.float32:
            mend += f" or say {cite('dtype')} float32"
        raise OptionError(f"{files.folder}: the weights hold NaN or infinity in {name}; {mend}")


def load_layers(layers: tuple[StLayer, ...], device: torch.device) -> Callable[[Tensor], Tensor]:
    """Load a sentence-transformers model's layers as one function [B, in] -> [B, out], float32."""
    steps = [_load_layer(layer, device) for layer in layers]

    def apply(vectors: Tensor) -> Tensor:
        for step in steps:
            vectors = step(vectors)
        return vectors

    return apply


def _load_layer(layer: StLayer, device: torch.device) -> Callable[[Tensor], Tensor]:
    if layer.kind == "normalize":
        return lambda x: F.normalize(x, dim=1)
    if layer.kind == "layer-norm":
        return _fill_weights(nn.LayerNorm(layer.parameters["dim"]), "norm.", layer.folder, device)
    return _fill_weights(_Dense(layer.parameters), "", layer.folder, device)


class _Dense(nn.Module):
    """A linear layer and its activation, which may have weights, too."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        sizes = (parameters[key] for key in ("in_features", "out_features", "bias"))
        self.linear = nn.Linear(*sizes)
        name = parameters["activation"]  # one of st_layers.ACTIVATIONS
        self.activation_function = getattr(nn, name)(**_ARGUMENTS.get(name, {}))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return [B, out_features] for vectors [B, in_features]."""
        return self.activation_function(self.linear(vectors))


def load_token_layers(
    layers: tuple[StLayer, ...], device: torch.device
) -> Callable[[Tensor, Tensor], Tensor]:
    """Load the layers before a pooling as one function of packed states and offsets.

    States are [N, H] float32, offsets [B + 1].
    """
    kinds = {"st-cnn": Convolutions, "st-lstm": Recurrent}
    steps = [
        _fill_weights(kinds[layer.kind](layer.parameters), "", layer.folder, device)
        for layer in layers
    ]

    def apply(states: Tensor, offsets: Tensor) -> Tensor:
        for step in steps:
            states = step(states, offsets)
        return states

    return apply


def load_cnn(folder: Path, device: torch.device) -> CnnNetwork:
    """Load the network of the CNN head in a folder."""
    return _fill_weights(CnnNetwork(), "network.", folder, device)


def _fill_weights(module: _Module, prefix: str, folder: Path, device: torch.device) -> _Module:
    path = find_safetensors(folder)[0]
    try:
        state = {key.removeprefix(prefix): value.float() for key, value in load_file(path).items()}
        module.load_state_dict(state)
    except (SafetensorError, RuntimeError) as error:
        raise OptionError(
            f"{path} does not fit its config.json ({describe_error(error)}); fetch the model again"
        ) from None
    return module.to(device).eval()


def load_tables(spec: PoolerSpec) -> dict[str, TokenStatistics]:
    """Load the token statistics that the parts of a SPEC name, by digest.

    Raises `OptionError` if a folder holds none.
    """
    folders = [part.table for part in spec.parts if part.table is not None]
    loaded = [load_statistics(folder) for folder in folders]
    return {statistics.digest: statistics for statistics in loaded}


def load_statistics(folder: str | Path) -> TokenStatistics:
    """Load the token statistics in a folder that `fit` made.

    Raises `OptionError` if they are missing or damaged.
    """
    table = read_table(folder)
    counts = Path(folder).expanduser() / table.described["counts"]
    return TokenStatistics.from_files(table, counts.read_bytes())


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars and warnings of transformers in the body."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
