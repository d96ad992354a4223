"""The settings of sentence-transformers' modules, as their JSON files have them.

Each class has the settings that sentence-transformers 6 reads, with its defaults.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.json_entries import fail, number, positive, text

Positive = Annotated[int, positive]
SENTENCE = "sentence_embedding"
SENTENCE_TRANSFORMER = "SentenceTransformer"  # not a CrossEncoder, SparseEncoder, ...
# Settings of the loading that change no vector, or that stand elsewhere here.
_IDLE_LOADING = frozenset(
    ("attn_implementation", "dtype", "torch_dtype", "device_map", "use_safetensors", "use_fast")
    + ("low_cpu_mem_usage", "trust_remote_code", "add_pooling_layer", "use_cache", "padding_side")
    + ("clean_up_tokenization_spaces",)
)


def _read_texts(value: Any, where: str) -> tuple[str, ...]:
    """Read a text, or a list of some."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        fail(where, "a string or a list of strings")
    return tuple(text(item, f"{where}[{place}]") for place, item in enumerate(value))


def _read_share(value: Any, where: str) -> float:
    if not 0 <= number(value, where) <= 1:
        fail(where, "a number from 0 to 1")
    return value


@dataclass(frozen=True)
class ModuleConfig:
    """An entry of modules.json."""

    type: str
    path: str
    name: str = ""


@dataclass(frozen=True)
class TransformerConfig:
    """The settings of a Transformer module."""

    transformer_task: str = "feature-extraction"
    modality_config: dict[str, dict[str, Any]] | None = None
    module_output_name: str | None = None
    processing_kwargs: dict[str, Any] | None = None
    unpad_inputs: bool | None = None
    query_length: Positive | None = None
    document_length: Positive | None = None
    query_expansion: dict[str, Any] | None = None
    max_seq_length: Positive | None = None
    do_lower_case: bool | None = None
    tokenizer_name_or_path: str | None = None
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    model_args: dict[str, Any] = field(default_factory=dict)
    processor_kwargs: dict[str, Any] = field(default_factory=dict)
    tokenizer_args: dict[str, Any] = field(default_factory=dict)
    config_kwargs: dict[str, Any] = field(default_factory=dict)
    config_args: dict[str, Any] = field(default_factory=dict)

    @property
    def unsupported(self) -> str | None:
        """The name of a setting that would give other vectors than the ones made here, or None."""
        if self._other_argument is not None:
            return self._other_argument
        for name in ("query_expansion", "query_length", "document_length"):
            if getattr(self, name):
                return name
        if self.transformer_task != "feature-extraction":
            return f"transformer_task {self.transformer_task!r}"
        if self.tokenizer_name_or_path is not None:
            return "tokenizer_name_or_path"
        processing = self.processing_kwargs or {}
        if processing.get("text") or processing.get("common"):
            return "processing_kwargs"
        return self._other_output

    @property
    def _other_argument(self) -> str | None:
        """The name of an argument of transformers' loading that may change vectors, or None."""
        for item in fields(self):
            if item.name.endswith(("_args", "_kwargs")) and item.name != "processing_kwargs":
                idle = _IDLE_LOADING
                if item.name in ("processor_kwargs", "tokenizer_args"):
                    idle |= {"model_max_length"}
                others = sorted(set(getattr(self, item.name)) - idle)
                if others:
                    return f"{item.name}.{others[0]}"
        return None

    @property
    def _other_output(self) -> str | None:
        if self.modality_config is None:
            return None
        states = self.modality_config.get("text", {})
        read = (states.get("method"), states.get("method_output_name"))
        if read != ("forward", "last_hidden_state"):
            return "modality_config without last_hidden_state of a text"
        if self.module_output_name != "token_embeddings":
            return f"module_output_name {self.module_output_name!r}"
        return None


@dataclass(frozen=True)
class TokenizerKwargs:
    """The settings of the tokenizer among those of a Transformer module."""

    model_max_length: Positive | None = None


@dataclass(frozen=True)
class Truncation:
    """The truncation in the tokenizer.json of a StaticEmbedding module."""

    max_length: Positive


@dataclass(frozen=True)
class PoolingConfig:
    """The settings of a Pooling module; the booleans are the older format of `pooling_mode`."""

    embedding_dimension: Positive | None = None
    word_embedding_dimension: Positive | None = None
    pooling_mode: Annotated[tuple[str, ...], _read_texts] = ()
    include_prompt: bool = True
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False


@dataclass(frozen=True)
class DenseConfig:
    """The settings of a Dense module."""

    in_features: Positive
    out_features: Positive
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: str = SENTENCE
    module_output_name: str | None = None
    use_residual: bool = False


@dataclass(frozen=True)
class LayerNormConfig:
    """The settings of a LayerNorm module."""

    dimension: Positive


@dataclass(frozen=True)
class NormalizeConfig:
    """The settings of a Normalize module."""

    module_input_name: str = SENTENCE
    module_output_name: str | None = None


@dataclass(frozen=True)
class DropoutConfig:
    """The settings of a Dropout module, which does nothing outside training."""

    dropout: Annotated[float, _read_share] = 0.2


@dataclass(frozen=True)
class WeightedLayersConfig:
    """The settings of a WeightedLayerPooling module."""

    embedding_dimension: Positive | None = None
    word_embedding_dimension: Positive | None = None
    num_hidden_layers: Positive = 12
    layer_start: int = 4


@dataclass(frozen=True)
class CnnConfig:
    """The settings of a CNN module."""

    in_embedding_dimension: Positive | None = None
    in_word_embedding_dimension: Positive | None = None
    out_channels: Positive = 256
    kernel_sizes: tuple[Positive, ...] = (1, 3, 5)
    stride_sizes: tuple[Positive, ...] | None = None


@dataclass(frozen=True)
class CnnHeadConfig:
    """The settings of our CNN head."""

    embedding_dimension: Positive


@dataclass(frozen=True)
class LstmConfig:
    """The settings of an LSTM module."""

    hidden_dim: Positive
    embedding_dimension: Positive | None = None
    word_embedding_dimension: Positive | None = None
    num_layers: Positive = 1
    dropout: Annotated[float, _read_share] = 0
    bidirectional: bool = True


@dataclass(frozen=True)
class RouterConfig:
    """The settings of a Router: the modules of each route, and their types."""

    types: dict[str, str]
    structure: dict[str, tuple[str, ...]]
    parameters: dict[str, Any]


@dataclass(frozen=True)
class SentenceTransformersConfig:
    """The settings of a directory as a whole."""

    model_type: str = SENTENCE_TRANSFORMER
    prompts: dict[str, str | None] = field(default_factory=dict)
    default_prompt_name: str | None = None
    truncate_dim: Positive | None = None
    similarity_fn_name: str | None = None


def read_width(
    config: PoolingConfig | WeightedLayersConfig | CnnConfig | LstmConfig, path: Path
) -> int:
    """Return the width of a module's input, which has an older name.

    Raises `OptionError` if neither name is in the file.
    """
    name = "in_embedding_dimension" if isinstance(config, CnnConfig) else "embedding_dimension"
    older = name.replace("embedding", "word_embedding")
    width = getattr(config, name) or getattr(config, older)
    if width is None:
        raise OptionError(f"{path}: {name} is missing; fetch the model again")
    return int(width)
