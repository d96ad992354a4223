"""Load a model's fast tokenizer, and read facts about it that its interface does not offer."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.processors import TemplateProcessing

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder.bert_tokenizer import load_bert_tokenizer
from sentence_beam.transforms.encoder.load import describe_error, load_config, quiet_transformers
from sentence_beam.transforms.space.model_files import ModelFiles
from sentence_beam.transforms.tokens.word_pieces import read_frame

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONVERTED = {"tokenizer.json", "tokenizer.model"}  # what transformers reads for every class


@dataclass(frozen=True)
class LoadedTokenizer:
    """A model's fast tokenizer, without padding and truncation, and its settings.

    `special_ids` are the ids of special tokens; `pad_id` and `pad_type` pad texts; `gives_types`:
    the model takes token types; `unknown` is the token for text that the vocabulary lacks, `mask`
    the one for a hidden word; `truncation_side` is the end at which long texts are cut.
    """

    tokenizer: Tokenizer
    special_ids: frozenset[int]
    pad_id: int = 0
    pad_type: int = 0
    gives_types: bool = True
    unknown: str | None = None
    mask: str | None = None
    truncation_side: str = "right"


def load_tokenizer(files: ModelFiles) -> LoadedTokenizer:
    """Load a model's fast tokenizer.

    Raises OptionError if it is damaged, or the model has no fast one.
    """
    try:
        loaded = _load(files)
        if loaded is not None:
            _try(loaded.tokenizer)
    except OptionError:
        raise
    # for a damaged file transformers and tokenizers raise bare Exception and many others, and Rust
    # a panic, which is no Exception
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        pieces = _find_sentence_pieces(files)
        if pieces is not None:
            raise OptionError(
                f"{pieces} cannot be converted here; where sentencepiece is installed, write"
                " tokenizer.json beside it (AutoTokenizer ... save_pretrained)"
            ) from None
        if not files.modules.static:
            load_config(files)  # which transformers reads, too: its error names the file
        raise OptionError(
            f"{files.folder}: its tokenizer cannot be loaded ({describe_error(error)}); fetch the"
            " model again"
        ) from None
    if loaded is None:
        raise OptionError(
            f"{files.folder}: it has no fast tokenizer; save one there as tokenizer.json"
        )
    loaded.tokenizer.no_padding()
    loaded.tokenizer.no_truncation()
    if files.modules.lower_case:
        _add_lower_case(loaded.tokenizer)
    return loaded


def _find_sentence_pieces(files: ModelFiles) -> Path | None:
    """Return the SentencePiece model from which transformers has to make the tokenizer, if any."""
    return next((path for path in files.tokenizer if path.suffix == ".model"), None)


def _try(tokenizer: Tokenizer) -> None:
    """Raise any error with which a tokenizer fails at a text, known words or not."""
    read_frame(tokenizer)
    tokenizer.encode("\u2603 1")


def _load(files: ModelFiles) -> LoadedTokenizer | None:
    """Load the tokenizer; None if the model has no fast one."""
    if files.modules.static:
        return _as_loaded(_load_bare(files.folder / "tokenizer.json"))
    bert = load_bert_tokenizer(files)
    if bert is not None:
        return LoadedTokenizer(
            bert.tokenizer,
            frozenset(bert.ids.values()),
            pad_id=bert.ids["pad_token"],
            unknown=bert.names["unk_token"],
            mask=bert.names["mask_token"],
        )
    from transformers import AutoTokenizer  # BERT does without it: it takes three seconds

    with quiet_transformers():
        wrapped = AutoTokenizer.from_pretrained(
            files.folder, local_files_only=True, trust_remote_code=False
        )
    if not wrapped.is_fast:
        return None
    _check_vocabulary(files, wrapped)
    return _as_loaded(wrapped)


def _check_vocabulary(files: ModelFiles, wrapped: "PreTrainedTokenizerBase") -> None:
    """Raise OptionError if the class of the tokenizer reads none of the folder's files.

    transformers then makes a tokenizer without words, for which all texts are the same.
    """
    names = set(wrapped.vocab_files_names.values())
    if any(path.name in names | _CONVERTED for path in files.tokenizer):
        return
    read = ", ".join(sorted(names))
    raise OptionError(
        f"{files.tokenizer[0]}: {type(wrapped).__name__} reads {read} instead; put tokenizer.json"
        " there (AutoTokenizer ... save_pretrained)"
    )


def _as_loaded(wrapped: "PreTrainedTokenizerBase") -> LoadedTokenizer:
    return LoadedTokenizer(
        wrapped.backend_tokenizer,
        frozenset(wrapped.all_special_ids),
        wrapped.pad_token_id or 0,
        wrapped.pad_token_type_id,
        "token_type_ids" in wrapped.model_input_names,
        wrapped.unk_token,
        wrapped.mask_token,
        wrapped.truncation_side,
    )


def _load_bare(path: Path) -> "PreTrainedTokenizerBase":
    """Load a tokenizer from its one file, so that it adds no special tokens."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _add_lower_case(tokenizer: Tokenizer) -> None:
    normalizer: Any = tokenizer.normalizer
    steps: list[Any] = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, NormalizerSequence):
        steps = list(cast("Iterable[Any]", normalizer))
    if not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.normalizer = NormalizerSequence([Lowercase(), *steps])


def find_unknown_id(loaded: LoadedTokenizer) -> int | None:
    """Return the id of the token for text that the vocabulary lacks; None without one.

    Vocabularies of bytes lack nothing, and some name the end of a text as their unknown token.
    """
    tokenizer = loaded.tokenizer
    name = getattr(tokenizer.model, "unk_token", None)
    if isinstance(tokenizer.model, Unigram):
        name = loaded.unknown
    if not name:
        return None
    number = tokenizer.token_to_id(name)
    return None if number in tokenizer.encode("").ids else number


def copy_untruncated(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of the tokenizer without truncation."""
    whole = Tokenizer.from_str(tokenizer.to_str())
    whole.no_truncation()
    return whole
