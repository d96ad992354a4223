"""Documents cut into pieces: what holds for every text, and where the cuts are.

Covers transforms/corpus/chunks/pack.py.
Covers transforms/corpus/chunks/long_atoms.py.
Covers transforms/corpus/chunks/room.py.
"""

import json
from functools import cache

import pytest
import regex
from helpers.examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Cutter, chunk
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.chunks_spec import ChunksSpec

TRAINING = [
    "the cat sat on the mat and read about antidisestablishmentarianism, twice",
    "ein Hund; ein Haus. 漢字 é",
]
SPECS = [
    "budget:tokens=%d",
    "budget:tokens=%d,overlap=3",
    "budget:tokens=%d,ends=stable",
    "budget:tokens=%d,by=markdown,overlap=2,ends=stable",
    "late:tokens=%d,by=markdown",
    "sentences",
]
HARD = (
    [
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "e\u0301",
        "\u0301",
        "\u200d",
        "\r\n",
        "\0",
        "\u00a0",
        "漢",
        "。",
        "！",
        "\u2029",
        "\f",
        "ﷺ",
        "क्षि",
        "각",
    ]
    + [
        "cat",
        "dog ",
        ". ",
        "\n\n",
        "# H\n",
        "- x\n",
        "```\n",
        "| a | b |\n",
        "---\n",
        "antidisestablishmentarianism",
        "1,000.5",
    ]
    + ["\u0600", "\ufe0f"]
)


@cache
def _tokenizer(kind: str) -> Tokenizer:
    """A tokenizer: WordPiece, BPE over bytes, Unigram, or BPE over the whole text, without
    words.
    """
    if kind == "wordpiece":
        found = Tokenizer.from_file(str(resolve_model("minilm").folder / "tokenizer.json"))
        found.no_truncation()
        found.no_padding()
        return found
    small = {"show_progress": False, "vocab_size": 300}
    if kind == "bytes":
        found = Tokenizer(models.BPE())
        found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **small)
    elif kind == "unigram":
        found = Tokenizer(models.Unigram())
        found.normalizer, found.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="<unk>", special_tokens=["<unk>"], **small)
    else:
        found = Tokenizer(models.BPE(unk_token="<unk>"))
        found.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        trainer = trainers.BpeTrainer(special_tokens=["<unk>"], **small)
    found.train_from_iterator(TRAINING, trainer)
    return found


def _length(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(HARD), max_size=40).map("".join))


def _is_beside_blank(text: str, place: int) -> bool:
    """Whether a cut has a blank before or after it, which ends a word even inside a cluster."""
    return text[place].isspace() or text[:place].endswith(tuple(" \n\r\f\xa0\u2029\t"))


@example(text="0\u0600\xa0\ufe0f", spec="budget:tokens=%d", tokens=7, kind="bytes")
@settings(max_examples=examples(200))
@given(
    text=TEXTS,
    spec=st.sampled_from(SPECS),
    tokens=st.integers(4, 16),
    kind=st.sampled_from(["wordpiece", "bytes", "unigram", "whole"]),
)
def test_of_any_text_the_pieces_are_in_order_within_the_budget_and_hold_every_sign(
    text: str, spec: str, tokens: int, kind: str
) -> None:
    tokenizer, spec = _tokenizer(kind), spec.replace("%d", str(tokens))
    spans = chunk(text, spec, tokenizer, tokens)
    if not spans:
        assert _length(tokenizer, text.strip()) == 0
        return
    assert [span[0] for span in spans] == sorted({span[0] for span in spans})
    assert [span[1] for span in spans] == sorted({span[1] for span in spans})
    if "overlap" not in spec:
        assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    covered = {place for start, end in spans for place in range(start, end)}
    assert not [
        place for place, sign in enumerate(text) if not sign.isspace() and place not in covered
    ]
    for start, end in spans:
        piece = text[start:end]
        assert not piece.isspace()
        assert _length(tokenizer, piece) <= tokens or len(piece) == 1
        if spec != "sentences" and _length(tokenizer, piece):
            assert chunk(piece, spec, tokenizer, tokens) == [(0, len(piece))]
    for cluster in regex.finditer(r"\X", text):
        inner = range(cluster.start() + 1, cluster.start() + len(cluster[0].rstrip()))
        cut = [
            place
            for span in spans
            for place in span
            if place in inner and not _is_beside_blank(text, place)
        ]
        assert not cut or _length(tokenizer, cluster[0]) > tokens


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return _tokenizer("wordpiece")


def _pieces(text: str, spec: str, tokenizer: Tokenizer, limit: int | None = 254) -> list[str]:
    return [text[start:end] for start, end in chunk(text, spec, tokenizer, limit)]


def test_a_piece_ends_where_a_paragraph_does_else_a_sentence_else_at_a_blank(
    wordpiece: Tokenizer,
) -> None:
    text = "One two three. Four five six.\n\nSeven eight nine. Ten eleven twelve thirteen fourteen fifteen"
    assert _pieces(text, "budget:tokens=9", wordpiece) == [
        "One two three. Four five six.",
        "Seven eight nine.",
        "Ten eleven twelve thirteen fourteen fifteen",
    ]
    assert _pieces(text, "budget:tokens=5", wordpiece)[-2:] == [
        "Ten eleven twelve thirteen fourteen",
        "fifteen",
    ]
    assert (
        _pieces("Dr. Who met Mr. X at 5 p.m. today. It rained.", "sentences", wordpiece)[-1]
        == "It rained."
    )


def test_a_sentence_longer_than_its_tokens_is_cut_also_for_a_model_without_a_limit(
    wordpiece: Tokenizer,
) -> None:
    text = "It rained. One two three four five six seven."
    with pytest.raises(OptionError, match="sentences:tokens=256"):
        _pieces(text, "sentences", wordpiece, None)
    assert _pieces(text, "sentences:tokens=256", wordpiece, None) == [text[:10], text[11:]]
    cut = _pieces(text, "sentences:tokens=5", wordpiece, None)
    assert cut == ["It rained.", "One two three four five", "six seven."]


def test_marks_that_no_blank_follows_end_sentences_too(wordpiece: Tokenizer) -> None:
    assert _pieces("今日は晴れ。「行こう！」彼は言った。本当？", "sentences", wordpiece) == [
        "今日は晴れ。",
        "「行こう！」",
        "彼は言った。",
        "本当？",
    ]


def test_a_piece_repeats_whole_sentences_of_the_one_before_and_not_too_many(
    wordpiece: Tokenizer,
) -> None:
    text = " ".join(f"This is sentence {word}." for word in ["one", "two", "three", "four", "five"])
    assert _pieces(text, "budget:tokens=10,overlap=5", wordpiece)[:2] == [
        "This is sentence one. This is sentence two.",
        "This is sentence two. This is sentence three.",
    ]
    assert _pieces(text, "budget:tokens=10,overlap=4", wordpiece)[1].startswith(
        "This is sentence three."
    )


MARKDOWN = """# Guide

Some words before.

## Install

Run these now:

- first one
- second one
- third one

```
pip install a

pip install b
```

Use
---

| a | b |
|---|---|
| 1 | 2 |
"""


def test_markdown_keeps_lists_tables_and_code_whole_and_headings_with_what_follows(
    wordpiece: Tokenizer,
) -> None:
    pieces = _pieces(MARKDOWN, "budget:tokens=24,by=markdown", wordpiece)
    for whole in [
        "- first one\n- second one\n- third one",
        "```\npip install a\n\npip install b\n```",
        MARKDOWN[MARKDOWN.index("| a") :].strip(),
    ]:
        assert [piece for piece in pieces if whole in piece], pieces
    assert [piece for piece in pieces if "## Install\n\nRun these now:" in piece]
    assert not [piece for piece in pieces if piece.endswith(("## Install", "---\n"))]


def test_pieces_of_markdown_know_their_headings_and_their_prefix_is_counted(
    wordpiece: Tokenizer,
) -> None:
    cutter = Cutter(ChunksSpec.parse("budget:tokens=20,by=markdown"), wordpiece, 26)
    found = cutter.cut([MARKDOWN], lambda number, headings: f"My title > {headings}: ")[0]
    assert found.headings[0] == "Guide"
    assert {"Guide > Install", "Guide > Use"} <= set(found.headings)
    for (start, end), headings, tokens in zip(
        found.spans, found.headings, found.tokens, strict=True
    ):
        assert tokens == _length(wordpiece, MARKDOWN[start:end])
        assert _length(wordpiece, f"My title > {headings}: {MARKDOWN[start:end]}") <= 26


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "unigram", "whole"])
def test_prompt_and_prefix_that_run_into_a_piece_leave_it_in_the_budget(kind: str) -> None:
    tokenizer = _tokenizer(kind)
    text = "supercalifragilistic words and more of the words " * 8
    limit = 12 + _length(tokenizer, "head")
    cutter = Cutter(ChunksSpec.parse("budget"), tokenizer, limit, prompt="query")
    most = limit + _length(tokenizer, "query")
    for start, end in cutter.cut([text], lambda number, headings: "head")[0].spans:
        assert _length(tokenizer, "queryhead" + text[start:end]) <= most


def test_a_prefix_that_fills_the_budget_is_refused(wordpiece: Tokenizer) -> None:
    cutter = Cutter(ChunksSpec.parse("budget"), wordpiece, 8)
    with pytest.raises(OptionError, match="leaves no token"):
        cutter.cut(
            ["some words"], lambda number, headings: "a title that is as long as this one is"
        )


def test_what_is_no_text_is_refused_by_its_place(wordpiece: Tokenizer) -> None:
    cutter = Cutter(ChunksSpec.parse("budget"), wordpiece, 8)
    with pytest.raises(OptionError, match="text 1 is no Unicode text"):
        cutter.cut(["fine", "\ud800 half"])
    with pytest.raises(OptionError, match="text 1 is of type int"):
        cutter.cut(["fine", 5])  # type: ignore[list-item]


def test_texts_cut_together_are_cut_as_each_alone(wordpiece: Tokenizer) -> None:
    texts = [MARKDOWN, "", "A. B. C.", " \n", MARKDOWN * 3]
    cutter = Cutter(ChunksSpec.parse("budget:tokens=16"), wordpiece, 254)
    assert [each.spans for each in cutter.cut(texts)] == [
        cutter.cut([text])[0].spans for text in texts
    ]


def _changed(spec: str, texts: list[str], tokenizer: Tokenizer) -> float:
    """The share of pieces that are new after a sentence went into each text."""
    new = total = 0
    for number, text in enumerate(texts):
        place = text.index(". ", len(text) * (number + 1) // (len(texts) + 2)) + 2
        edited = f"{text[:place]}A sentence that was not there before. {text[place:]}"
        before, after = set(_pieces(text, spec, tokenizer)), _pieces(edited, spec, tokenizer)
        new += sum(piece not in before for piece in after)
        total += len(after)
    return new / total


def test_an_inserted_sentence_changes_few_pieces_whose_ends_are_stable(
    wordpiece: Tokenizer,
) -> None:
    words = "river stone cloud bird house light paper green window summer".split()
    sentences = [
        " ".join(words[(n * k) % 10] for k in range(1, 4 + n % 7)).capitalize() + f" {n}."
        for n in range(900)
    ]
    text = " ".join(sentences)
    assert _changed("budget:tokens=96,ends=stable", [text] * 4, wordpiece) <= 0.05


def test_sentences_of_real_text_are_found(wordpiece: Tokenizer) -> None:
    text = "He said (i.e. he wrote) it cost $3.50. Nobody at Acme Inc. agreed! Why? See fig. 2 for more."
    assert _pieces(text, "sentences", wordpiece) == [
        "He said (i.e. he wrote) it cost $3.50.",
        "Nobody at Acme Inc. agreed!",
        "Why?",
        "See fig. 2 for more.",
    ]


def test_what_is_long_without_a_sentence_is_cut_at_lines_clauses_and_blanks(
    wordpiece: Tokenizer,
) -> None:
    lines = "\n".join(f"key {n} value {n}" for n in range(400))
    assert all(piece.startswith("key") for piece in _pieces(lines, "budget:tokens=60", wordpiece))
    clauses = ", ".join(f"then it was {n}" for n in range(400))
    assert all(
        piece.endswith(",") for piece in _pieces(clauses, "budget:tokens=60", wordpiece)[:-1]
    )
    words = " ".join(f"word{n}" for n in range(400))
    assert all(piece.startswith("word") for piece in _pieces(words, "budget:tokens=60", wordpiece))


def test_spaces_without_end_cost_nothing(wordpiece: Tokenizer) -> None:
    assert chunk("a" + " " * 300_000 + "b", "budget:tokens=1", wordpiece, 254) == [
        (0, 1),
        (300_001, 300_002),
    ]
    assert chunk("\n" * 300_000, "budget", wordpiece, 254) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a" * 10_000_000,
        "word " * 2_000_000,
        "漢字仮名交" * 200_000,
        "A. " * 300_000,
        "a" + "\u0301" * 300_000,
        "." * 1_000_000,
    ]
    + ["This is a sentence of many. " * 100_000],
    ids=["letter", "words", "cjk", "initials", "marks", "dots", "sentences"],
)
def test_texts_that_no_one_writes_are_cut_in_bounded_pieces(
    text: str, wordpiece: Tokenizer
) -> None:
    spans = chunk(text, "budget", wordpiece, 254)
    assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    assert sum(end - start for start, end in spans) >= sum(not sign.isspace() for sign in text)
    assert max(end - start for start, end in spans) <= 254 * 64


def test_the_tokenizer_that_is_given_stays_as_it_is(wordpiece: Tokenizer) -> None:
    mine = Tokenizer.from_str(wordpiece.to_str())
    mine.enable_truncation(5)
    mine.enable_padding()
    before = json.loads(mine.to_str())["truncation"]
    assert len(chunk("one two three four five six seven " * 4, "budget:tokens=7", mine, 254)) == 4
    assert json.loads(mine.to_str())["truncation"] == before


def test_none_is_the_text_as_it_is(wordpiece: Tokenizer) -> None:
    assert chunk(" as it is ", "none", wordpiece, 4) == [(0, 10)]
