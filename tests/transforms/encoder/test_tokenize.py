"""Known and unknown tokens of texts, by tokenizers of several kinds."""

from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_models import save_tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.space.model_files import resolve_model

TEXTS = ["the dog", "คน", "", "the x y", "a " * 60 + "x"]


def tokenizer_of(folder: Path, **how: object) -> TextTokenizer:
    return TextTokenizer(resolve_model(str(folder)), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", ["", "the dog is "])
@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "xlnet"])
def test_special_tokens_and_prompts_do_not_count(tmp_path: Path, family: str, prompt: str) -> None:
    tokenizer = tokenizer_of(save_tiny_model(family, tmp_path), prompt=prompt, limit=24)
    words = tokenizer.words(tokenizer(TEXTS))
    assert words.unknown.tolist() == [0, 1, 0, 2, 0]  # what is cut off does not count
    assert words.known[:4].tolist() == [2, 0, 0, 1]
    assert 18 <= words.known[4] <= 24


def test_the_end_of_a_text_is_no_unknown_word(tmp_path: Path) -> None:
    """Vocabularies of bytes know every text, and may name the token that ends one as their unknown
    token.
    """
    save_tiny_model("bert", tmp_path)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*letters, "<|end|>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<|end|>", eos_token="<|end|>"
    ).save_pretrained(tmp_path)
    found = tokenizer_of(tmp_path)
    words = found.words(found(["คน", "a<|end|>"]))
    assert (words.unknown.tolist(), words.known.tolist()) == ([0, 0], [6, 1])
    assert words.known.dtype == np.int64


UNSEEN = ["\u200b", "\u200b\u200d", "\u00ad", "\x00\x01", "\ufeff", "\U000e0041", "\u2060 \u00a0"]


@pytest.mark.parametrize("prompt", ["", "query: ", "\u200b"])
def test_texts_that_the_tokenizer_drops_are_unseen(prompt: str) -> None:
    tokenizer = TextTokenizer(resolve_model("minilm"), prompt=prompt, limit=24)
    texts = ["a dog", *UNSEEN, "...", "❤", "", "query:"]
    assert tokenizer.find_unseen(tokenizer(texts)).tolist() == [*range(1, 8), 10]


def test_a_text_of_which_the_prompt_leaves_nothing_is_not_unseen(tmp_path: Path) -> None:
    folder = save_tiny_model("bert", tmp_path)
    tokenizer = tokenizer_of(folder, prompt="the dog is " * 10, limit=8)
    assert tokenizer.find_unseen(tokenizer(["cat", "dog"])).tolist() == []
