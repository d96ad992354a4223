"""SBERT-WK, Ditto, TF-IDF, remove-biases and prompt pooling on every architecture, and against
their references.

Covers transforms/encoder/prompt_template.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.blocks import count_block_calls
from helpers.families import save_family
from helpers.tiny_models import CONFIGS, FAMILIES, HIDDEN, TEXTS, WORDS, edit_json, save_tiny_model
from helpers.variants import variants
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoModel, AutoTokenizer, T5EncoderModel

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.prompt_template import PromptTemplate
from sentence_beam.transforms.pooling import Status, TokenStatistics
from sentence_beam.transforms.space import parse_pooler, resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer

HEADS = [
    "ditto:1-1",
    "ditto:1-4,states=static",
    "ditto:2-3,states=last,scale=sum",
    "ditto:3-2,states=first-last",
]
OTHERS = [
    "sbert-wk",
    "sbert-wk:start=0,window=1,variant=paper,importance=all,count=all",
    "sbert-wk:weights=even,tokens=even",
    "tfidf:{tfidf}",
    "sif:{counts}",
    "sif:{counts},states=last,a=0.01",
    "remove-biases:{counts},top=2,case=keep",
    "mean+ditto:2-1,scale=count,count=no-special+sbert-wk+tfidf:{tfidf},scale=norm",
]
MASKED = {
    "bert": "[MASK]",
    "roberta": "<mask>",
    "xlm-roberta": "<mask>",
    "albert": "[MASK]",
    "mpnet": "<mask>",
    "distilbert": "[MASK]",
} | {
    "deberta-v2": "[MASK]",
    "modernbert": "[MASK]",
}
TEMPLATE = "the child is {text} %s red blue"


@pytest.fixture(scope="module")
def tables(tiny, tmp_path_factory) -> dict[str, dict[str, Path]]:
    """family -> folders of token statistics of each method, counted over the tiny corpus."""
    root = tmp_path_factory.mktemp("tables")
    return {family: _fit(tiny[family], root / family) for family in FAMILIES}


def _fit(model: Path, root: Path) -> dict[str, Path]:
    files, tokenizer = resolve_model(str(model)), AutoTokenizer.from_pretrained(model)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    offsets = np.cumsum([0, *map(len, ids)])
    flat, folders = np.array([token for text in ids for token in text]), {}
    for key, method in (("tfidf", "tfidf"), ("counts", "token-counts")):
        fitted = TokenStatistics.count(method, hash_tokenizer(files), flat, offsets, len(tokenizer))
        folders[key] = write_table(root / key, fitted)
    return folders


def write_table(folder: Path, fitted: TokenStatistics) -> Path:
    """The statistics as a folder."""
    folder.mkdir(parents=True)
    for name, data in fitted.to_files().items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> dict[str, Path]:
    """Folder of one tiny model a family, its tokenizer with a mask token."""
    root = tmp_path_factory.mktemp("masked")
    return {family: _with_mask(family, root / family, token) for family, token in MASKED.items()}


def _with_mask(family: str, folder: Path, token: str) -> Path:
    save_tiny_model(family, folder)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    tokenizer.add_special_tokens({"mask_token": token})
    torch.manual_seed(11)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _load(folder: Path, pooler: str, **options: object) -> Encoder:
    return Encoder.load(
        str(folder),
        **{"normalize": False, "dtype": "float32", "device": "cpu", **options},
        pooler=pooler,
    )


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def _same_whatever_the_batch(
    encoder: Encoder, texts: list[str], ends: Sequence[int] = ()
) -> np.ndarray:
    """The vectors; where parts of them end somewhere, each part has to be close for itself."""
    together = encoder.encode(texts)
    assert np.isfinite(together).all()
    for budget in (1, 20):
        encoder.tokens_per_batch = budget
        order = np.random.permutation(len(texts))
        found, expected = encoder.encode([texts[i] for i in order]), together[order]
        parts = zip(np.split(found, ends, axis=1), np.split(expected, ends, axis=1), strict=True)
        assert all(_close(mine, theirs) for mine, theirs in parts)
    return together


# of the others each pooler alone is tried among the slow tests
ALONE = ("bert",)


@pytest.mark.parametrize("pooler", HEADS + OTHERS)
@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[] if name in ALONE else pytest.mark.slow) for name in FAMILIES],
)
def test_a_vector_depends_neither_on_batch_nor_on_padding_nor_on_order(
    tiny, tables, family, pooler
):
    encoder = _load(tiny[family], pooler.format(**tables[family]))
    together = _same_whatever_the_batch(encoder, TEXTS)
    assert together.shape == (len(TEXTS), encoder.dim)
    assert len({vector.tobytes() for vector in together}) > 3


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ALONE])
def test_vectors_of_all_poolers_joined_depend_on_none_of_it_either(tiny, tables, family):
    joined = "+".join(pooler.format(**tables[family]) for pooler in HEADS + OTHERS)
    encoder, embedding = _load(tiny[family], joined), CONFIGS[family].get("embedding_size", HIDDEN)
    *ends, last = np.cumsum([part.dim(HIDDEN, embedding) for part in parse_pooler(joined).parts])
    together = _same_whatever_the_batch(encoder, TEXTS, ends)
    assert together.shape == (len(TEXTS), encoder.dim) == (len(TEXTS), last)
    for part in np.split(together, ends, axis=1):
        assert len({vector.tobytes() for vector in part}) > 3


@variants("head", ["1-1", "2-3", "3-4"], (1,))
@pytest.mark.parametrize("family", FAMILIES)
def test_ditto_weighs_by_the_diagonal_of_eager_attention(tiny, family, head):
    kind = T5EncoderModel if family == "t5" else AutoModel
    model = kind.from_pretrained(tiny[family], attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny[family])
    block, number = map(int, head.split("-"))
    expected = []
    for text in TEXTS:
        with torch.inference_mode():
            out = model(
                **tokenizer(text, return_tensors="pt"),
                output_hidden_states=True,
                output_attentions=True,
            )
        weights = out.attentions[block - 1][0, number - 1].diagonal()
        expected.append(
            (weights @ (out.hidden_states[0][0] + out.hidden_states[-1][0]) / 2).numpy()
        )
    assert _close(_load(tiny[family], f"ditto:{head}").encode(TEXTS), np.stack(expected))


@pytest.mark.parametrize("family", ["afmoe", "distilbert"])
def test_heads_of_families_that_give_their_mask_by_name_and_by_place(tmp_path, family):
    save_family(family, tmp_path / "m")
    encoder = Encoder.load(str(tmp_path / "m"), pooler="ditto:2-1", dtype="float32", device="cpu")
    texts = ["a man", "the dog is in the park and the cat is not", "dog"]
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(encoder.encode(texts), alone, atol=2e-5)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "albert"])
@variants(("head", "blocks"), [("1-2", 0), ("3-1", 2)], (1,))
def test_static_ditto_runs_only_the_blocks_below_its_head(tiny, family, head, blocks, monkeypatch):
    encoder = _load(tiny[family], f"ditto:{head},states=static")
    calls = count_block_calls(monkeypatch)
    encoder.encode(["the dog is riding"])
    assert len(calls) == blocks


def test_poolers_of_one_head_share_a_pass_with_others(tiny):
    for family in ("bert", "albert", "modernbert", "mpnet"):
        joined = _load(tiny[family], "ditto:2-1+ditto:3-3,states=last+mean").encode(TEXTS)
        apart = [
            _load(tiny[family], spec).encode(TEXTS)
            for spec in ("ditto:2-1", "ditto:3-3,states=last", "mean")
        ]
        assert _close(joined, np.concatenate(apart, axis=1))


def test_long_texts_take_the_fused_attention_and_stay_the_same(tmp_path):
    folder = save_tiny_model("bert", tmp_path / "long", max_position_embeddings=128)
    edit_json(folder / "tokenizer_config.json", model_max_length=128)
    texts = [" ".join(WORDS.split() * 4)[:size] for size in (600, 500, 40)]
    for pooler in ("ditto:2-2", "sbert-wk"):
        _same_whatever_the_batch(_load(folder, pooler), texts)


@pytest.mark.parametrize(("layers", "start"), [(2, 0), (3, 1), (5, 1), (6, 4), (8, 4)])
def test_sbert_wk_starts_where_three_layers_are_left_and_says_so(tmp_path, layers, start):
    folder = save_tiny_model("bert", tmp_path / "model", num_hidden_layers=layers)
    encoder = _load(folder, "sbert-wk")
    assert encoder.space.pooler["parts"][0]["start"] == start
    assert np.isfinite(encoder.encode(TEXTS)).all()


def test_the_space_holds_the_tables_digest_and_not_its_path(tiny, tables, tmp_path):
    where = tables["bert"]["tfidf"]
    encoder = _load(tiny["bert"], f"tfidf:{where}")
    assert str(where) not in json.dumps(encoder.space.to_json())
    moved = tmp_path / "a+b"
    moved.mkdir()
    for file in where.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    assert _load(tiny["bert"], f"tfidf:{moved}").space.id == encoder.space.id
    assert _load(tiny["bert"], f"tfidf:{where},unseen=max").space.id != encoder.space.id


@pytest.mark.parametrize(
    ("family", "pooler", "words"),
    [
        ("bert", "ditto:4-1", "blocks 1 to 3, heads 1 to 4"),
        ("bert", "ditto:1-5", "blocks 1 to 3, heads 1 to 4"),
        ("bert", "sbert-wk:start=2", "start=0 to start=1"),
        ("bert", "sbert-wk:window=3", "window must be 1 to 2"),
        ("bert", "sbert-wk:window=0", "window must be 1 to 2"),
        ("bert", "tfidf:/nowhere", "sentence-beam fit"),
        ("bert", "tfidf:{counts}", "method token-counts"),
        ("roberta", "tfidf:{tfidf}", "another tokenizer"),
        ("bert", "remove-biases:{tfidf}", "method tfidf"),
        ("bert", "remove-biases", "word pieces"),
        ("electra", "prompt:template={{text}} [MASK]", "not trained to fill a mask"),
        ("t5", "prompt:template={{text}} <mask>", "not trained to fill a mask"),
        ("xlnet", "prompt:template={{text}} <mask>", "not trained to fill a mask"),
        ("bert", "prompt:template={{text}} [MASK]", "no mask token"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tiny, tables, family, pooler, words):
    with pytest.raises(OptionError, match=words) as caught:
        _load(tiny[family], pooler.format(**tables["bert"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "options", "words"),
    [
        ("a dog [MASK]", {}, r"must hold \{text\} once"),
        ("{text} {text} [MASK]", {}, r"must hold \{text\} once"),
        ("{text} is", {}, r"must hold \[MASK\] once"),
        ("[MASK] {text} [MASK]", {}, r"must hold \[MASK\] once"),
        (TEMPLATE % "[MASK]", {"max_tokens": 8}, "template alone has 8"),
        (TEMPLATE % "[MASK]", {"prompt": "query: "}, "has its own template"),
    ],
)
def test_templates_that_cannot_work_are_refused(masked, template, options, words):
    with pytest.raises(OptionError, match=words):
        _load(masked["bert"], f"prompt:template={template}", **options)


@pytest.mark.parametrize("family", MASKED)
@variants("template", [TEMPLATE, "%s red {text} in the park"], (0,))
def test_prompt_takes_the_templates_mask_whatever_the_text_says(masked, family, template):
    token = MASKED[family]
    texts = [*TEXTS, f"a {token} is red {token}", "cat?", "dog."]
    encoder = _load(masked[family], f"prompt:template={template % token}")
    together = _same_whatever_the_batch(encoder, texts)
    tokenizer = AutoTokenizer.from_pretrained(masked[family])
    model = AutoModel.from_pretrained(masked[family]).eval()
    for row, text in enumerate(texts):
        neutral = text.replace(token, f"{token[0]} {token[1:]}")
        dotted = neutral if not neutral or neutral.endswith((".", "?")) else f"{neutral}."
        encoded = tokenizer((template % token).replace("{text}", dotted), return_tensors="pt")
        place = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()
        assert place.shape == (1, 1)
        with torch.inference_mode():
            expected = model(**encoded).last_hidden_state[0, place.item()].numpy()
        assert _close(together[row], expected)


@pytest.mark.parametrize("family", MASKED)
def test_truncation_shortens_the_text_and_leaves_the_template_whole(masked, family):
    token = MASKED[family]
    encoder = _load(masked[family], f"prompt:template={TEMPLATE % token}", max_tokens=12)
    tokenized = encoder.tokenize(["dog cat apple horse man woman", "dog"])
    assert tokenized.counts.tolist() == [8 + 6, 8 + 1]
    assert tokenized.truncated.tolist() == [True, False]
    tokenizer = AutoTokenizer.from_pretrained(masked[family])
    read = tokenizer.convert_ids_to_tokens(tokenized.ids[:12].tolist())
    assert read[1:-1] == f"the child is dog cat apple horse {token} red blue".split()
    assert _close(
        encoder.encode(["dog cat apple horse man woman"]),
        encoder.encode(["dog cat apple horse cat man"]),
    )


@pytest.mark.parametrize("family", MASKED)
def test_denoising_subtracts_the_template_at_the_sentences_positions(masked, family):
    token = MASKED[family]
    spec = f"prompt:denoise=yes,template={TEMPLATE % token}"
    if family == "deberta-v2":
        with pytest.raises(OptionError, match="no absolute positions"):
            _load(masked[family], spec)
        return
    encoder = _load(masked[family], spec)
    plain = _load(masked[family], f"prompt:template={TEMPLATE % token}").encode(TEXTS)
    found = _same_whatever_the_batch(encoder, TEXTS)
    embedded = encoder.embed(encoder.tokenize(TEXTS))
    assert embedded.status.tolist() == [Status.ZERO if not text else Status.OK for text in TEXTS]
    tokenizer, model = (
        AutoTokenizer.from_pretrained(masked[family]),
        AutoModel.from_pretrained(masked[family]).eval(),
    )
    bare = tokenizer((TEMPLATE % token).replace("{text}", ""), return_tensors="pt")["input_ids"]
    first = model.embeddings.padding_idx + 1 if family in ("roberta", "xlm-roberta", "mpnet") else 0
    for row, text in enumerate(TEXTS):
        positions = first + torch.arange(8) + len(text.split()) * (torch.arange(8) >= 4)
        with torch.inference_mode():
            delta = (
                model(input_ids=bare, position_ids=positions[None]).last_hidden_state[0, 4].numpy()
            )
        assert np.abs(found[row] - (plain[row] - delta)).max() <= 2e-5 * np.abs(plain).max()


@pytest.mark.parametrize(
    "template", ["the cat ' {text} ' is <mask>", "<mask> is {text}", "'{text}'<mask> is"]
)
def test_templates_in_byte_level_tokens_keep_their_mask_and_count_the_texts_own_tokens(template):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["the cat is ' the cat ' is the cat's \u6771\u4eac . ."] * 20, trainer
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), add_prefix_space=False
    )
    made, mask = PromptTemplate(template, tokenizer, "<mask>", 24), tokenizer.token_to_id("<mask>")
    for text, own in [
        ("", 0),
        ("the cat", None),
        ("a <mask> cat", None),
        ("\u6771\u4eac" * 20, None),
        (".", 1),
    ]:
        (filled,) = made([text])
        assert [place for place, token in enumerate(filled.ids) if token == mask] == [filled.mask]
        assert len(filled.ids) == min(filled.whole, 24)
        assert (filled.ids[0], filled.ids[-1]) == (0, 1)
        if own is not None:
            assert filled.whole - len(made.bare.ids) == own


def test_rows_are_graded(tiny, tables):
    unseen = _load(tiny["bert"], f"tfidf:{tables['bert']['tfidf']}")
    texts = ["small blue apple", "small blue", "dog cat", ""]
    assert unseen.embed(unseen.tokenize(texts)).status.tolist() == [0, 1, 0, 1]
    removed = _load(tiny["bert"], "remove-biases:variant=generic,top=0")
    assert removed.embed(removed.tokenize(["dog", "", "Dog"])).status.tolist() == [0, 1, 0]


def test_case_lower_makes_texts_alike_and_drop_takes_capitals_out(tiny, tables):
    lower = _load(tiny["bert"], f"remove-biases:{tables['bert']['counts']},top=1")
    assert np.array_equal(lower.encode(["The DOG is Big"]), lower.encode(["the dog is big"]))
    keep = _load(tiny["bert"], "remove-biases:variant=generic,top=0,case=keep")
    assert np.array_equal(
        keep.encode(TEXTS), _load(tiny["bert"], "static:count=no-special").encode(TEXTS)
    )


def test_half_precision_stays_close(tiny):
    for pooler in ("ditto:2-2", "sbert-wk"):
        exact = _load(tiny["bert"], pooler, normalize=True).encode(TEXTS)
        coarse = _load(tiny["bert"], pooler, normalize=True, dtype="bfloat16").encode(TEXTS)
        assert (exact * coarse).sum(1).min() > 0.99
