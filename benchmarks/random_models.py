"""Models with random weights in MiniLM's word pieces: small ones of every family, and well-known
shapes; and texts.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.normalizers import NFKC, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5EncoderModel,
)

from benchmarks.common import real_texts
from sentence_beam.transforms.base.errors import MissingExtraError
from sentence_beam.transforms.encoder.load import quiet_transformers
from sentence_beam.transforms.encoder.tokenize import Tokenized
from sentence_beam.transforms.space import resolve_model

VOCABULARY = 30_522  # at least so many token ids are known to every model
_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_SMALL |= {"max_position_embeddings": 512, "initializer_range": 0.2, "pad_token_id": 0}
_SHARED = {"num_key_value_heads": 2, "head_dim": 16}
# What small models of a family have besides; all but the last three run without padding on a GPU.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"max_position_embeddings": 514, "type_vocab_size": 1},
    "distilbert": {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 128},
    "modernbert": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "gte": {},
    "nomic_bert": {},
    "qwen2": _SHARED,
    "qwen3": _SHARED,
    "llama": _SHARED,
    "mistral": {**_SHARED, "sliding_window": 8},
    "gemma": {**_SHARED, "num_key_value_heads": 1},
    "gemma3_text": {**_SHARED, "use_bidirectional_attention": True, "sliding_window": 8},
    "gemma2": {**_SHARED, "sliding_window": 8},
    "mpnet": {"max_position_embeddings": 514},
    "t5": {"d_model": 64, "num_layers": 3, "num_heads": 4, "d_kv": 16, "d_ff": 128},
}
PADDED = frozenset(("gemma2", "mpnet", "t5"))
_BERT = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
_QWEN = {
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 3072,
}
# The peak's share that each is to reach on a GPU at 128 tokens and more is in benchmarks.gpu_speed.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "MiniLM": (
        "bert",
        {**_BERT, "num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536},
    ),
    "BERT-base": ("bert", _BERT),
    "Qwen3-0.6B": (
        "qwen3",
        {**_QWEN, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096},
    ),
}


@dataclass(frozen=True)
class RandomModel:
    """A model's folder, and what a token costs in its blocks: products with weights, and those with
    each token seen.
    """

    folder: Path
    weights: int
    seen: int
    causal: bool

    def flops(self, length: int) -> float:
        """Operations a token of texts of one length; a causal model's token sees half of its
        text.
        """
        return self.weights + self.seen * length / (2 if self.causal else 1)


def known(family: str) -> bool:
    """Whether this version of transformers has the family."""
    return family in CONFIG_MAPPING


def seeded_model(config: PretrainedConfig) -> PreTrainedModel:
    """A model of seeded random weights, its norms and biases moved a little, so that none of them
    does nothing.
    """
    torch.manual_seed(7)
    model = T5EncoderModel(config) if config.model_type == "t5" else AutoModel.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name.lower() or "bias" in name:
                weight.add_(0.1 * torch.randn_like(weight))
    return model


def save_model(
    family: str, folder: Path, dtype: torch.dtype = torch.float32, **settings: Any
) -> RandomModel:
    """A model of the family with seeded random weights, its norms and biases moved a little, and
    its tokenizer.
    """
    tokenizer = word_pieces()
    # some families add a token or two when their tokenizer is loaded
    config = AutoConfig.for_model(
        family, vocab_size=max(len(tokenizer), VOCABULARY) + 6, **settings
    )
    model = seeded_model(config)
    with quiet_transformers():
        model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # a pooler's layer is for one token of a text, and no part of these passes
    named = model.named_modules()
    linear = [part for name, part in named if isinstance(part, nn.Linear) and "pooler" not in name]
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    seen = 4 * config.num_hidden_layers * heads * width
    return RandomModel(
        folder, 2 * sum(part.weight.numel() for part in linear), seen, "use_cache" in vars(config)
    )


@lru_cache(maxsize=1)
def word_pieces() -> PreTrainedTokenizerBase:
    """Return MiniLM's tokenizer, or one made from docstrings if its package is not installed."""
    try:
        return AutoTokenizer.from_pretrained(resolve_model("minilm").folder)
    except MissingExtraError:
        return trained_pieces(real_texts(None, 10_000))


def trained_pieces(texts: list[str]) -> PreTrainedTokenizerBase:
    """A tokenizer of word pieces that texts have, as BERT's."""
    pieces = Tokenizer(WordPiece(unk_token="[UNK]"))
    pieces.normalizer, pieces.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    special = list(_SPECIAL.values())
    pieces.train_from_iterator(
        texts, WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special)
    )
    return _wrapped(pieces)


def trained_bytes(texts: list[str]) -> PreTrainedTokenizerBase:
    """A tokenizer of byte-level BPE that texts have, with GPT-2's pattern, as RoBERTa's."""
    pieces = Tokenizer(BPE())
    pieces.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL.values()),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer)
    return _wrapped(pieces)


def trained_unigram(texts: list[str]) -> PreTrainedTokenizerBase:
    """A Unigram tokenizer that texts have, split at blanks, as XLM-RoBERTa's and T5's."""
    pieces = Tokenizer(Unigram())
    pieces.normalizer = NFKC()
    pieces.pre_tokenizer = PreTokenizers([WhitespaceSplit(), Metaspace()])
    trainer = UnigramTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL.values()),
        unk_token=_SPECIAL["unk"],
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer)
    return _wrapped(pieces)


def _wrapped(pieces: Tokenizer) -> PreTrainedTokenizerBase:
    """The tokenizer with special tokens around a text, as transformers saves it."""
    ends = [(token, pieces.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    pieces.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    said: dict[str, Any] = {f"{name}_token": token for name, token in _SPECIAL.items()}
    said["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=pieces, model_max_length=512, **said)


def small(family: str, folder: Path) -> Path:
    """A small model of a family."""
    return save_model(family, folder / family, **{**_SMALL, **FAMILIES[family]}).folder


def alike(texts: int, length: int, vocabulary: int) -> Tokenized:
    """Texts of one length, of tokens at random."""
    ids = np.random.default_rng(0).integers(0, vocabulary, texts * length).astype(np.int32)
    counts = np.full(texts, length, np.int32)
    return Tokenized(
        ids, np.arange(texts + 1, dtype=np.int64) * length, counts, np.zeros(texts, bool)
    )
