"""BERT as plain torch modules: it loads without transformers, whose import takes three seconds.

Modules and weights have the names of transformers' `BertModel`, and the pass computes the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.space.model_files import ModelFiles, read_safetensors_shapes

# settings with which another model than this one is meant, unless they have these values
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "embedding_size": (None,),
    "quantization_config": (None,),
}
_NUMBERS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_EPSILON = 1e-12  # of a layer norm, unless config.json has another
_PREFIX = "bert."
# heads above the blocks, and tables that are computed now
_UNUSED = ("cls.", "classifier.", "qa_outputs.", "bert.embeddings.position_ids")
_COMPUTED = "embeddings.position_ids"
_POOLER = "pooler."


@dataclass(frozen=True)
class BertStates:
    """The result of a pass, by transformers' names; states are [B, T, H]."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] = ()


def is_plain_bert(files: ModelFiles) -> bool:
    """Return whether `load_bert` loads the model that transformers would.

    Its config.json must ask for nothing beyond BERT, and its weights be exactly BERT's by name.
    """
    if files.family != "bert" or not _is_plain(files.config):
        return False
    shapes = {}
    for path in files.weights:
        for key, shape in read_safetensors_shapes(path).items():
            name = _find_own_name(key)
            if name is not None:
                shapes[name] = shape
    weights = _make_empty(files, shapes).state_dict()
    return shapes == {name: list(weight.shape) for name, weight in weights.items()}


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json asks for nothing beyond BERT."""
    if any(config.get(name) not in values for name, values in _PLAIN.items()):
        return False
    if not all(type(config.get(name)) is int and config[name] > 0 for name in _NUMBERS):
        return False
    if not isinstance(config.get("layer_norm_eps", _EPSILON), float):
        return False
    return (config.get("pad_token_id") or 0) in range(config["vocab_size"])


def load_bert(files: ModelFiles, dtype: torch.dtype) -> "BertModel":
    """Load the weights of a model that `is_plain_bert`, as `dtype`, on the processor."""
    weights = {}
    for path in files.weights:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():
                name = _find_own_name(key)
                if name is not None:
                    # a copy, so that the mapped file is let go
                    weights[name] = file.get_tensor(key).to(dtype, copy=True)
    model = _make_empty(files, weights)
    model.load_state_dict(weights, assign=True)
    model.name_or_path = str(files.folder)
    return model


def _make_empty(files: ModelFiles, names: Iterable[str]) -> "BertModel":
    """Make the model for weights of these names, which takes no memory until it has them."""
    has_pooler = any(name.startswith(_POOLER) for name in names)
    with torch.device("meta"):
        return BertModel(files.config, has_pooler)


def _find_own_name(key: str) -> str | None:
    """Return the name of a weight in `BertModel`, None if it is none of its."""
    return None if key.startswith(_UNUSED) or key == _COMPUTED else key.removeprefix(_PREFIX)


class BertModel(nn.Module):
    """BERT's embeddings, blocks and, if the weights have it, the tanh pooler."""

    name_or_path = ""

    def __init__(self, config: Mapping[str, Any], has_pooler: bool = True) -> None:
        super().__init__()
        self.config = SimpleNamespace(
            model_type="bert",
            num_attention_heads=config["num_attention_heads"],
            intermediate_size=config["intermediate_size"],
        )
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        if has_pooler:
            self.pooler = BertPooler(config["hidden_size"])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.embeddings.word_embeddings.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embeddings."""
        return self.embeddings.word_embeddings

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> BertStates:
        """Run texts [B, T], padded on the right where the mask [B, T] is 0."""
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        state = self.embeddings(input_ids, token_type_ids, places.expand_as(input_ids))
        seen = attention_mask.bool()[:, None, None] if attention_mask is not None else None
        states = [state]
        for block in self.encoder.layer:
            state = block(state, seen)
            states.append(state)
        return BertStates(state, tuple(states) if output_hidden_states else ())


class BertEmbeddings(nn.Module):
    """The sum of the embeddings of a token, its type and its place, normalised."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.word_embeddings = _make_table(config["vocab_size"], width)
        self.position_embeddings = _make_table(config["max_position_embeddings"], width)
        self.token_type_embeddings = _make_table(config["type_vocab_size"], width)
        self.LayerNorm = _make_norm(config)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Return the states [..., H] of tokens, each input [...]."""
        state = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(state + self.position_embeddings(position_ids))


class BertEncoder(nn.Module):
    """The blocks of the model, one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config["num_hidden_layers"]))


class BertLayer(nn.Module):
    """A block: attention and two linear layers, each added to its input and normalised."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]
        inner = config["intermediate_size"]
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(width, inner)
        self.output = BertOutput(inner, config)

    def forward(self, hidden_states: Tensor, seen: Tensor | None) -> Tensor:
        """Return the block's output [B, T, H]; `seen` [B, 1, 1, T] is true for tokens to see."""
        middle = self.attention(hidden_states, seen)
        return self.output(self.intermediate(middle), middle)


class BertAttention(nn.Module):
    """Attention, added to its input and normalised."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.self = BertSelfAttention(config["hidden_size"], config["num_attention_heads"])
        self.output = BertOutput(config["hidden_size"], config)

    def forward(self, state: Tensor, seen: Tensor | None) -> Tensor:
        """Return the normalised sum [B, T, H]."""
        return self.output(self.self(state, seen), state)


class BertSelfAttention(nn.Module):
    """Attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, state: Tensor, seen: Tensor | None) -> Tensor:
        """Return the mixed values [B, T, H]."""
        query = self._split_by_head(self.query(state))
        key = self._split_by_head(self.key(state))
        value = self._split_by_head(self.value(state))
        mixed = F.scaled_dot_product_attention(query, key, value, seen)
        return mixed.transpose(1, 2).flatten(2)

    def _split_by_head(self, part: Tensor) -> Tensor:
        return part.unflatten(2, (self.heads, -1)).transpose(1, 2)


class BertIntermediate(nn.Module):
    """The first of a block's linear layers, with its activation."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, inner)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, state: Tensor) -> Tensor:
        """Return the activations [B, T, inner]."""
        return self.intermediate_act_fn(self.dense(state))


class BertOutput(nn.Module):
    """A linear layer, added to another state and normalised."""

    def __init__(self, inner: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config["hidden_size"])
        self.LayerNorm = _make_norm(config)

    def forward(self, state: Tensor, added: Tensor) -> Tensor:
        """Return the normalised sum [B, T, H]."""
        return self.LayerNorm(self.dense(state) + added)


class BertPooler(nn.Module):
    """The tanh pooler over the first token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, state: Tensor) -> Tensor:
        """Return [B, H] for states [B, T, H]."""
        return torch.tanh(self.dense(state[:, 0]))


def _make_table(rows: int, width: int) -> nn.Embedding:
    """Return an embedding table that is not filled: torch's own filling imports its compiler."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width))


def _make_norm(config: Mapping[str, Any]) -> nn.LayerNorm:
    return nn.LayerNorm(config["hidden_size"], eps=config.get("layer_norm_eps", _EPSILON))
