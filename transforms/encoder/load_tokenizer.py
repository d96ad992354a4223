"""Load a model's fast tokenizer, and read facts about it that its interface does not offer."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from transforms.base.errors import OptionError, first_line
from transforms.encoder.load import quiet_transformers
from transforms.space.model_files import ModelFiles


def load_tokenizer(files: ModelFiles) -> PreTrainedTokenizerBase:
    """Load a model's fast tokenizer, without padding and truncation.

    Raises OptionError if it is damaged, or the model has no fast one.
    """
    try:
        if files.modules.static:
            tokenizer = _load_bare(files.folder / "tokenizer.json")
        else:
            with quiet_transformers():
                tokenizer = AutoTokenizer.from_pretrained(
                    files.folder, local_files_only=True, trust_remote_code=False
                )
    # for a damaged file transformers and tokenizers raise bare Exception and many others
    except Exception as error:
        raise OptionError(
            f"{files.folder}: its tokenizer cannot be loaded ({first_line(error)})"
        ) from None
    if not tokenizer.is_fast:
        raise OptionError(
            f"{files.folder}: it has no fast tokenizer; save one there as tokenizer.json"
        )
    fast: Tokenizer = tokenizer.backend_tokenizer
    fast.no_padding()
    fast.no_truncation()
    if files.modules.lower_case:
        _lower_case(fast)
    return tokenizer


def _load_bare(path: Path) -> PreTrainedTokenizerBase:
    """Load a tokenizer from its one file, so that it adds no special tokens."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _lower_case(tokenizer: Tokenizer) -> None:
    normalizer: Any = tokenizer.normalizer
    steps: list[Any] = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, NormalizerSequence):
        steps = list(cast("Iterable[Any]", normalizer))
    if not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.normalizer = NormalizerSequence([Lowercase(), *steps])


def unknown_id(wrapped: PreTrainedTokenizerBase) -> int | None:
    """Return the id of the token for text that the vocabulary lacks; None without one.

    Vocabularies of bytes lack nothing, and some name the end of a text as their unknown token.
    """
    tokenizer: Tokenizer = wrapped.backend_tokenizer
    name = getattr(tokenizer.model, "unk_token", None)
    if isinstance(tokenizer.model, Unigram):
        name = wrapped.unk_token
    if not name:
        return None
    number = tokenizer.token_to_id(name)
    return None if number in tokenizer.encode("").ids else number


def untruncated(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of the tokenizer without truncation."""
    whole = Tokenizer.from_str(tokenizer.to_str())
    whole.no_truncation()
    return whole
