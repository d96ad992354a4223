"""Small tokenizers of the kinds whose texts are split at words."""

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.normalizers import NFC, NFKC, BertNormalizer, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Metaspace,
    Split,
    WhitespaceSplit,
)
from tokenizers.pre_tokenizers import Sequence as SplitSequence
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, UnigramTrainer

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "un", "##happy", "Cat"),
    *"abcde0123!?.,[]'-_$^`+=<>|~",
    *(f"##{letter}" for letter in "abcde0123"),
]


def word_piece(lowercase: bool = True) -> Tokenizer:
    """BERT's, of a few pieces."""
    model = WordPiece(
        {piece: number for number, piece in enumerate(PIECES)},
        unk_token="[UNK]",
        max_input_chars_per_word=20,
    )
    made = Tokenizer(model)
    made.normalizer = BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = BertPreTokenizer()
    made.add_special_tokens(PIECES[:5])
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"|\p{N}| ", r"|\p{N}{1,3}| ")
SAMPLE = [
    "It's the cat's, isn't it? They'll say so, they've said so; we're the cats. I'd go, I'm here.",
    "def read(path, *, mode='r'):\n    return open(path, mode).read()\n\n\n# 1234.5 + 67890 = 69124.5",
    "a  b   c\td\r\n  e.\n\n  (f) [g] {h} <i> \"j\" 'k' -- l_m__n",
] * 3
ADDED = ["<s>", "</s>", "<unk>"]


def byte_level(pattern: str | None) -> Tokenizer:
    """GPT-2's tokenizer, or one with another pattern, of a few merges."""
    made = Tokenizer(BPE())
    made.normalizer = NFC()
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    if pattern is not None:
        split = Split(Regex(pattern), "isolated")
        by_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = SplitSequence([split, by_bytes])
    made.train_from_iterator(
        SAMPLE,
        BpeTrainer(
            vocab_size=400,
            special_tokens=ADDED,
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return made


def unigram(scheme: str = "always") -> Tokenizer:
    """XLM-RoBERTa's, of a few pieces; most marks are unknown."""
    made = Tokenizer(Unigram())
    made.normalizer = NormalizerSequence([NFKC(), Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = SplitSequence([WhitespaceSplit(), Metaspace(prepend_scheme=scheme)])
    trainer = UnigramTrainer(
        vocab_size=80, special_tokens=ADDED, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator([text.replace("'", "") for text in SAMPLE], trainer)
    return made


OTHERS = {
    "gpt2": byte_level(None),
    "qwen": byte_level(QWEN),
    "llama": byte_level(LLAMA),
    "unigram": unigram(),
    "unigram, never": unigram("never"),
}
