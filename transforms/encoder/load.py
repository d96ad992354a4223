"""Loading from a model's folder: its weights, the layers after its pooling, and a pooler's token
statistics.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
)
from transformers.utils import logging

from transforms.base.errors import OptionError, first_line
from transforms.pooling.cnn import CnnNetwork
from transforms.pooling.token_layers import Convolutions, Recurrent
from transforms.pooling.token_statistics import TokenStatistics
from transforms.space.model_files import STATIC_KEYS, ModelFiles, find_safetensors, safetensors_keys
from transforms.space.spec import PoolerSpec
from transforms.space.st_layers import StLayer
from transforms.space.token_table import read_table

_Module = TypeVar("_Module", bound=nn.Module)
_TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Encoder-decoders that want a text to decode beside the one they encode: of these the encoder alone
# is run.
_WITH_DECODER = frozenset(
    (
        "blenderbot",
        "blenderbot-small",
        "longt5",
        "m2m_100",
        "marian",
        "nllb-moe",
        "pegasus",
        "pegasus_x",
        "prophetnet",
    )
    + ("switch_transformers",)
)
# Masks, positions and frequencies that old checkpoints hold and models compute.
_COMPUTED = re.compile(r"\.(position_ids|inv_freq|masked_bias|attn\.bias|attention\.bias)$")
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
    "SiLU": F.silu,
}


def load_model(files: ModelFiles, dtype: str, device: torch.device) -> nn.Module:
    """The model in eval mode on `device`, of an encoder-decoder the encoder alone.

    Raises `OptionError` where its weights are damaged, not finite or do not fit the architecture.
    """
    if files.modules.static:
        return StaticTable(files).to(device).eval()
    for path in files.weights:
        safetensors_keys(path)  # whose error names the file
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(
                files.folder, local_files_only=True, trust_remote_code=False
            )
            # of T5 and its kin there is a class without the decoder
            kind = (
                AutoModelForTextEncoding
                if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING
                else AutoModel
            )
            model, report = kind.from_pretrained(
                files.folder,
                config=config,
                dtype=_TORCH_DTYPES[dtype],
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except (
        Exception
    ) as error:  # transformers raises bare types of every kind for a damaged or unknown model
        raise OptionError(
            f"{files.folder}: the model cannot be loaded ({first_line(error)})"
        ) from None
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise OptionError(
            f"{files.folder}: the weights lack {missing[0]}; it would be random, fetch the model"
            " again"
        )
    left_out = sorted(key for key in report["unexpected_keys"] if _belongs(model, key))
    if left_out:
        raise OptionError(
            f"{files.folder}: the weights hold {left_out[0]}, which this version of transformers"
            f" leaves out of {files.family}: its vectors would be others; use another model"
        )
    model = model.get_encoder() if files.family in _WITH_DECODER else model
    _check_finite(files, model)
    _keep_no_cache(model.config)
    return model.to(device).eval()


class StaticTable(nn.Module):
    """The token embeddings of sentence-transformers' StaticEmbedding, also as model2vec writes
    them, in float32.
    """

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
        """The table, as transformers' models give theirs."""
        return self.embedding


def load_mix(mix: StLayer) -> tuple[float, ...]:
    """The weights of the layers that are averaged before the pooling."""
    return tuple(_load_tensors(find_safetensors(mix.folder)[0])["layer_weights"].float().tolist())


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise OptionError(
            f"{path} is not a safetensors file ({first_line(error)}); fetch the model again"
        ) from None


def _keep_no_cache(config: Any) -> None:
    """Keys and values are for a text that goes on."""
    for part in (config, *(getattr(config, name, None) for name in type(config).sub_configs)):
        if hasattr(part, "use_cache"):
            part.use_cache = False


def _belongs(model: nn.Module, key: str) -> bool:
    """Whether a weight that was not loaded lies inside one of the model's blocks.

    Heads above the blocks, blocks that config.json leaves out, the other half of an
    encoder-decoder, and tables that are computed again do not.
    """
    modules, place = dict(model.named_modules()), key.removeprefix(f"{model.base_model_prefix}.")
    while place and place not in modules:
        place = place.rpartition(".")[0]
    in_block = any(part.isdigit() for part in place.split("."))
    return in_block and not isinstance(modules[place], nn.ModuleList) and not _COMPUTED.search(key)


def _check_finite(files: ModelFiles, model: Any) -> None:
    """Refuse NaN or infinity in weights, except in the embedding matrix, where a row spoils only
    some texts.
    """
    try:
        embedding = model.get_input_embeddings().weight
    except (NotImplementedError, AttributeError):
        raise OptionError(
            f"{files.folder}: {files.family} has no token embeddings; use another model"
        ) from None
    for name, weight in model.named_parameters():
        if (
            weight is not embedding
            and "pooler" not in name
            and not bool(torch.isfinite(weight).all())
        ):
            narrow = "" if weight.dtype == torch.float32 else " or say --dtype float32"
            raise OptionError(
                f"{files.folder}: the weights hold NaN or infinity in {name}; fetch the model"
                f" again{narrow}"
            )


def load_layers(layers: tuple[StLayer, ...], device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function [B, in] -> [B, out], float32, that applies a sentence-transformers model's
    `layers` in order.
    """
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
        return _with_weights(nn.LayerNorm(layer.parameters["dim"]), "norm.", layer.folder, device)
    sizes = (layer.parameters[key] for key in ("in_features", "out_features", "bias"))
    linear = _with_weights(nn.Linear(*sizes), "linear.", layer.folder, device)
    activation = _ACTIVATIONS[layer.parameters["activation"]]
    return lambda x: activation(linear(x))


def load_token_layers(
    layers: tuple[StLayer, ...], device: torch.device
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of packed states [N, H] float32 and offsets [B + 1] that applies the layers before
    a pooling.
    """
    kinds = {"st-cnn": Convolutions, "st-lstm": Recurrent}
    steps = [
        _with_weights(kinds[layer.kind](layer.parameters), "", layer.folder, device)
        for layer in layers
    ]

    def apply(states: Tensor, offsets: Tensor) -> Tensor:
        for step in steps:
            states = step(states, offsets)
        return states

    return apply


def load_cnn(folder: Path, device: torch.device) -> CnnNetwork:
    """The network of the CNN head in a folder."""
    return _with_weights(CnnNetwork(), "network.", folder, device)


def _with_weights(module: _Module, prefix: str, folder: Path, device: torch.device) -> _Module:
    path = find_safetensors(folder)[0]
    try:
        state = {key.removeprefix(prefix): value.float() for key, value in load_file(path).items()}
        module.load_state_dict(state)
    except (SafetensorError, RuntimeError) as error:
        raise OptionError(f"{path} does not fit its config.json ({first_line(error)})") from None
    return module.to(device).eval()


def load_tables(spec: PoolerSpec) -> dict[str, TokenStatistics]:
    """The token statistics that the parts of a SPEC name, by digest; `OptionError` where a folder
    holds none.
    """
    folders = [part.table for part in spec.parts if part.table is not None]
    loaded = [load_statistics(folder) for folder in folders]
    return {statistics.digest: statistics for statistics in loaded}


def load_statistics(folder: str | Path) -> TokenStatistics:
    """The token statistics in a folder that `fit` made; `OptionError` where they are missing or
    damaged.
    """
    table = read_table(folder)
    counts = Path(folder).expanduser() / table.described["counts"]
    return TokenStatistics.from_files(table, counts.read_bytes())


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """A context without progress bars and warnings of transformers; its settings are restored
    afterwards.
    """
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
