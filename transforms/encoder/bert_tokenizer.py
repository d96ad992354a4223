"""BERT's tokenizer from its one file, if transformers would make the same of a model's folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from sentence_beam.transforms.space.json_files import read_json_if_there
from sentence_beam.transforms.space.model_files import ModelFiles

_CLASSES = ("BertTokenizer", "BertTokenizerFast")
# the special tokens that a BERT tokenizer has, by the names of its settings
_NAMES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# settings with which transformers would make another tokenizer, unless they have these values
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "do_basic_tokenize": (True,),
    "never_split": (None,),
    "truncation_side": ("right",),
    "model_input_names": (["input_ids", "token_type_ids", "attention_mask"],),
    "additional_special_tokens": ([],),
    "extra_special_tokens": ({}, []),
}
# settings that are read here, or that change no token
_READ = frozenset(
    ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "tokenizer_class")
    + ("added_tokens_decoder", "name_or_path", "model_max_length", "special_tokens_map_file")
    + ("clean_up_tokenization_spaces", "max_length", "stride", "truncation_strategy")
    + ("pad_to_multiple_of", "pad_token_type_id", "padding_side", "tokenizer_file", "backend")
    + tuple(_NAMES)
)


@dataclass(frozen=True)
class BertTokenizer:
    """A tokenizer, and its special tokens and their ids by the names of their settings."""

    tokenizer: Tokenizer
    names: Mapping[str, str]
    ids: Mapping[str, int]


def load_bert_tokenizer(files: ModelFiles) -> BertTokenizer | None:
    """Return the tokenizer of a plain BERT; None if transformers is needed to make it.

    tokenizer.json must be what transformers' `BertTokenizer` would write for tokenizer_config.json.
    """
    path = files.folder / "tokenizer.json"
    settings = files.tokenizer_config
    if files.family != "bert" or not path.is_file() or not _is_plain(settings):
        return None
    names = _read_names(files)
    if names is None:
        return None
    saved = read_json_if_there(path)
    ids = {token.get("content"): token.get("id") for token in saved.get("added_tokens", [])}
    if sorted(ids) != sorted(set(names.values())) or not _agree(settings, saved["added_tokens"]):
        return None
    if _select_parts(saved) != _make_parts(settings, names, ids):
        return None
    special = {name: ids[token] for name, token in names.items()}
    return BertTokenizer(Tokenizer.from_file(str(path)), names, special)


def _is_plain(settings: Mapping[str, Any]) -> bool:
    if settings.get("tokenizer_class") not in _CLASSES:
        return False
    for name, value in settings.items():
        if name not in _READ and value not in _PLAIN.get(name, ()):
            return False
    return settings.get("pad_token_type_id", 0) == 0


def _read_names(files: ModelFiles) -> dict[str, str] | None:
    """Return the special tokens by the names of their settings; None if two files differ."""
    if (files.folder / "added_tokens.json").is_file():
        return None
    settings = files.tokenizer_config
    names = {name: _read_content(settings.get(name, usual)) for name, usual in _NAMES.items()}
    mapped = read_json_if_there(files.folder / "special_tokens_map.json")
    if any(names.get(name) != _read_content(token) for name, token in mapped.items()):
        return None
    return names


def _read_content(token: Any) -> str:
    """Return a token that is written as its text or as an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return str(token)


def _agree(settings: Mapping[str, Any], added: list[dict[str, Any]]) -> bool:
    """Whether all added tokens are plain special ones, and both files have the same."""
    for token in added:
        flags = [token.get(name) for name in ("single_word", "lstrip", "rstrip", "normalized")]
        if any(flags) or token.get("special") is not True:
            return False
    if "added_tokens_decoder" not in settings:
        return True
    decoder = settings["added_tokens_decoder"]
    return {str(token["id"]): {**token, "id": None} for token in added} == {
        number: {**token, "id": None} for number, token in decoder.items()
    }


def _select_parts(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a tokenizer.json that make tokens, without the vocabulary."""
    names = ("normalizer", "pre_tokenizer", "post_processor", "model")
    parts = {name: saved.get(name) for name in names}
    model = dict(parts["model"] or {})
    model.pop("vocab", None)
    return {**parts, "model": model}


def _make_parts(
    settings: Mapping[str, Any], names: Mapping[str, str], ids: Mapping[str, int]
) -> dict[str, Any]:
    """Return the parts that transformers would make."""
    first = names["cls_token"]
    last = names["sep_token"]
    single = [_make_special(first, 0), _make_sequence("A", 0), _make_special(last, 0)]
    frame = {
        name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in sorted((first, last))
    }
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, _make_sequence("B", 1), _make_special(last, 1)],
            "special_tokens": frame,
        },
        "model": {
            "type": "WordPiece",
            "unk_token": names["unk_token"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
    }


def _make_special(name: str, kind: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": kind}}


def _make_sequence(name: str, kind: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": kind}}
