"""Tiny random-weight models of several architectures, their tokenizers built in memory, saved by
transformers.
"""

import json
from pathlib import Path

import helpers.few_words  # noqa: F401
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, PreTrainedTokenizerFast

from benchmarks.random_models import seeded_model

WORDS = (
    "a man woman child is are was riding eating playing the guitar "
    "horse dog cat apple in on park street red blue big small"
)
TEXTS = [
    "a man is playing the guitar",
    "dog",
    "",
    "the child is riding a big red horse in the park on the street",
    "a woman was eating an apple",
    "cat dog",
    "the the the the",
]
HIDDEN, INNER, LAYERS, LONGEST = 24, 40, 3, 48

_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": INNER,
}
_BERT = {**_SIZES, "max_position_embeddings": LONGEST, "initializer_range": 0.3, "pad_token_id": 0}
CONFIGS: dict[str, dict] = {
    "bert": _BERT,
    "roberta": {
        **_BERT,
        "max_position_embeddings": LONGEST + 2,
        "pad_token_id": 1,
        "type_vocab_size": 1,
    },
    "xlm-roberta": {
        **_BERT,
        "max_position_embeddings": LONGEST + 2,
        "pad_token_id": 1,
        "type_vocab_size": 1,
    },
    "albert": {**_BERT, "embedding_size": 12},
    "electra": {**_BERT, "embedding_size": 12},
    "mpnet": {**_BERT, "max_position_embeddings": LONGEST + 2, "pad_token_id": 1},
    "distilbert": {
        "dim": HIDDEN,
        "n_layers": LAYERS,
        "n_heads": 4,
        "hidden_dim": INNER,
        "max_position_embeddings": LONGEST,
    }
    | {"initializer_range": 0.3, "pad_token_id": 0},
    "xlnet": {
        "d_model": HIDDEN,
        "n_layer": LAYERS,
        "n_head": 4,
        "d_inner": INNER,
        "initializer_range": 0.3,
    },
    "deberta-v2": {
        **_BERT,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
    },
    "modernbert": {**_BERT, "global_attn_every_n_layers": 2, "local_attention": 8},
    "t5": {"d_model": HIDDEN, "num_layers": LAYERS, "num_heads": 4, "d_kv": 6, "d_ff": INNER},
}
FAMILIES = tuple(CONFIGS)
WITHOUT_POOLER = frozenset(("electra", "distilbert", "xlnet", "deberta-v2", "modernbert", "t5"))


def save_tiny_model(family: str, folder: Path, **changes: object) -> Path:
    """A model of one family with seeded random weights, its tokenizer beside it."""
    tokenizer = tiny_tokenizer(family)
    settings = {**CONFIGS[family], **_token_ids(tokenizer), **changes}
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **settings)
    model = seeded_model(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Words split at blanks, with the special tokens, their places and the padding side of the
    family.
    """
    if family == "xlnet":
        return _tokenizer(["<pad>", "<unk>"], "", "<sep> <cls>", padding_side="left")
    if family == "t5":
        return _tokenizer(["<pad>", "<unk>"], "", "</s>")
    if family in ("roberta", "xlm-roberta", "mpnet"):
        return _tokenizer(["<s>", "<pad>", "</s>", "<unk>"], "<s>", "</s>")
    return _tokenizer(["[PAD]", "[UNK]"], "[CLS]", "[SEP]")


def _tokenizer(
    first: list[str], before: str, after: str, padding_side: str = "right"
) -> PreTrainedTokenizerFast:
    specials = list(dict.fromkeys([*first, *before.split(), *after.split()]))
    vocabulary = {token: i for i, token in enumerate([*specials, *WORDS.split()])}
    unknown = next(token for token in specials if "unk" in token.lower())
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pieces = (
        [f"{token}:0" for token in before.split()]
        + ["$A:0"]
        + [_typed(token) for token in after.split()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(pieces), special_tokens=[(token, vocabulary[token]) for token in specials]
    )
    padding = next(token for token in specials if "pad" in token.lower())
    names = {
        "pad_token": padding,
        "unk_token": unknown,
        "cls_token": before or specials[-1],
        "sep_token": after.split()[0],
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side=padding_side, model_max_length=LONGEST, **names
    )


def _typed(token: str) -> str:
    return f"{token}:2" if token == "<cls>" else f"{token}:0"


def _token_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    ids = {"pad_token_id": tokenizer.pad_token_id, "cls_token_id": tokenizer.cls_token_id}
    return {
        **ids,
        "sep_token_id": tokenizer.sep_token_id,
        "bos_token_id": 0,
        "eos_token_id": tokenizer.sep_token_id,
    }


def edit_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON file; a value of None removes the key."""
    value = json.loads(path.read_text()) if path.is_file() else {}
    value = {key: item for key, item in {**value, **changes}.items() if item is not None}
    path.write_text(json.dumps(value))
