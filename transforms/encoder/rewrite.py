"""Texts that a pooler wants changed before they are tokenized."""

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer

from transforms.pooling.remove_biases import kept_text

Rewrite = Callable[[list[str]], list[str]]


def make_rewrite(pooler: Mapping[str, Any], tokenizer: Tokenizer) -> Rewrite | None:
    """What the first part of a space's pooler does to texts; None where it leaves them as they are."""
    if pooler.get("name") == "remove-biases" and pooler["variant"] == "reference":
        whole = untruncated(tokenizer)
        return lambda texts: _kept_texts(texts, whole)
    if pooler.get("case") == "lower":
        return lambda texts: [text.lower() for text in texts]
    return None


def untruncated(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that never cuts."""
    whole = Tokenizer.from_str(tokenizer.to_str())
    whole.no_truncation()
    return whole


def _kept_texts(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    encodings = tokenizer.encode_batch_fast([f" {text}" for text in texts], add_special_tokens=False)
    # the fast way of encoding gives ids alone
    return [kept_text([tokenizer.id_to_token(number) or "" for number in encoding.ids]) for encoding in encodings]
