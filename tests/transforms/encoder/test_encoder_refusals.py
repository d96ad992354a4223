"""What the encoder finds out when a model is loaded, and what it refuses by name.

Covers transforms/encoder/layer_hooks.py.
Covers transforms/encoder/load_replica.py.
Covers transforms/encoder/load_tokenizer.py.
Covers transforms/encoder/packed.py.
Covers transforms/encoder/padded.py.
Covers transforms/encoder/probe.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.families import LONGEST as LONGEST_OF_A_FAMILY
from helpers.families import model_class, save_family
from helpers.tiny_models import TEXTS, edit_json, save_tiny_model
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import CONFIG_MAPPING, AutoModel, AutoTokenizer

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder, packed
from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.layer_hooks import LayerStates
from sentence_beam.transforms.encoder.padded import PaddedRunner
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.space import dtypes, resolve_model


def _load(folder: Path, pooler: str = "mean", dtype: str = "float32", **options: object) -> Encoder:
    return Encoder.load(
        str(folder), pooler=pooler, dtype=dtype, device="cpu", normalize=False, **options
    )


def _edit_weights(folder: Path, **tensors: torch.Tensor) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, **tensors}, folder / "model.safetensors", {"format": "pt"})


WRONG_BRANCHES = {
    "narrow softmax": (
        "softmax",
        lambda usual: lambda scores: usual(scores) if scores.shape[-1] >= 16 else scores,
    ),
    "wide softmax": (
        "softmax",
        lambda usual: lambda scores: usual(scores) if scores.shape[-1] < 16 else scores,
    ),
    "short attention": ("attend_short", lambda _: lambda query, key, value: value),
    "long attention": ("attend_long", lambda _: lambda query, key, value: value),
    "runs of several texts": (
        "find_equal_lengths",
        lambda usual: lambda lengths: [(start, 1, width) for start, _, width in usual(lengths)],
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("branch", WRONG_BRANCHES)
def test_a_wrong_branch_of_the_packed_pass_is_found_when_the_model_is_loaded(
    tmp_path, monkeypatch, branch, dtype
):
    folder = save_tiny_model("bert", tmp_path, max_position_embeddings=64)
    assert _load(folder, dtype=dtype).together is BatchSharing.PACKED
    name, wrong = WRONG_BRANCHES[branch]
    monkeypatch.setattr(packed, name, wrong(getattr(packed, name)))
    assert _load(folder, dtype=dtype).together is BatchSharing.PADDED


UNUSED = {
    "a head": "cls.predictions.transform.dense.weight",
    "a block that config.json leaves out": "encoder.layer.3.attention.self.query.weight",
    "a table that is computed": "embeddings.position_ids",
}
LEFT_OUT = {
    "relative positions": "encoder.layer.1.attention.self.distance_embedding.weight",
    "with the prefix of a pretraining model": "bert.encoder.layer.1.attention.self.distance_embedding.weight",
    "an adapter": "encoder.layer.0.attention.self.query.lora_A.default.weight",
    "scales of a quantised weight": "encoder.layer.0.output.dense.weight_scale",
}


@pytest.mark.parametrize("key", UNUSED.values(), ids=UNUSED)
def test_weights_above_the_blocks_may_be_left_out(tmp_path, key):
    folder = save_tiny_model("bert", tmp_path)
    usual = _load(folder).encode(TEXTS)
    _edit_weights(folder, **{key: torch.zeros(2, 2)})
    assert np.array_equal(_load(folder).encode(TEXTS), usual)


@pytest.mark.parametrize("key", LEFT_OUT.values(), ids=LEFT_OUT)
def test_weights_inside_the_blocks_may_not_be_left_out(tmp_path, key):
    folder = save_tiny_model("bert", tmp_path)
    _edit_weights(folder, **{key: torch.zeros(2, 2)})
    with pytest.raises(OptionError, match=f"{key.removeprefix('bert.')}.*leaves out of bert"):
        _load(folder)


def test_a_tokenizer_with_ids_beyond_the_embedding_table_is_refused(tmp_path):
    folder = save_tiny_model("bert", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = len(tokenizer)
    tokenizer.add_tokens(["unicorn"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(
        OptionError, match=f"ids up to {rows}, the model {rows} token embeddings.*resize_token"
    ):
        _load(folder)


UNREAD_VOCABULARIES = {
    "bert": ("BertTokenizer", "vocab.json", "vocab.txt"),
    "roberta": ("RobertaTokenizer", "vocab.txt", "vocab.json"),
    "t5": ("T5Tokenizer", "vocab.txt", "spiece.model"),
    "xlm-roberta": ("XLMRobertaTokenizer", "spiece.model", "sentencepiece.bpe.model"),
}


@pytest.mark.parametrize("family", UNREAD_VOCABULARIES)
def test_a_vocabulary_that_the_tokenizer_does_not_read_is_refused(tmp_path, family):
    """Else no word would be known, and all texts would have one vector."""
    kind, name, read = UNREAD_VOCABULARIES[family]
    folder = save_tiny_model(family, tmp_path)
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / name).write_text(json.dumps(words))
    edit_json(folder / "tokenizer_config.json", tokenizer_class=kind)
    with pytest.raises(OptionError, match=f"^{folder / name}: {kind} reads .*{read}.* instead"):
        _load(folder)


@pytest.mark.parametrize("name", ["tokenizer.model", "sentencepiece.bpe.model"])
def test_a_sentencepiece_model_that_cannot_be_read_is_one_line_with_what_to_do(tmp_path, name):
    """It is read where sentencepiece is installed; this one would not be even there."""
    folder = save_tiny_model("xlm-roberta", tmp_path)
    (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(b"no model of pieces")
    edit_json(folder / "tokenizer_config.json", tokenizer_class="XLMRobertaTokenizer")
    with pytest.raises(
        OptionError, match=f"^{folder / name} cannot .* where sentencepiece .* tokenizer.json"
    ) as caught:
        _load(folder)
    assert "\n" not in str(caught.value)


def test_no_keys_and_values_are_kept(tmp_path):
    save_family("gpt2", tmp_path)
    encoder, kept = _load(tmp_path), []
    model = encoder.replicas[0].forward.runner.models.shortest
    model.register_forward_hook(lambda _, __, output: kept.append(output.past_key_values))
    encoder.encode(["a b c"])
    assert kept == [None]


def test_one_text_that_is_no_list_gives_one_vector(tiny):
    encoder = _load(tiny["bert"])
    assert np.array_equal(encoder.encode("dog"), encoder.encode(["dog"])[0])
    assert encoder.encode("").shape == (encoder.dim,)
    assert encoder.encode([]).shape == (0, encoder.dim)


@pytest.mark.parametrize("item", [("a", "b"), None, 3, b"dog", ["dog"], float("nan")], ids=repr)
def test_an_item_that_is_no_text_is_an_error_with_its_place(tiny, item):
    with pytest.raises(OptionError, match=f"text 1 is of type {type(item).__name__}"):
        _load(tiny["bert"]).encode(["dog", item, "cat"])


@pytest.mark.parametrize("pooler", ["mean", "prompt:denoise=no,template=the {text} is [MASK]"])
def test_half_of_a_surrogate_pair_is_an_error_with_its_place(tmp_path, pooler):
    folder = save_tiny_model("bert", tmp_path)
    if pooler != "mean":
        _with_mask(folder)
    with pytest.raises(OptionError, match="text 2 is no Unicode text: .*ud800.* at character 4"):
        _load(folder, pooler).encode(["dog", "\U0001f600", "cat \ud800"])


def _with_mask(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    tokenizer.save_pretrained(folder)
    model = AutoModel.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)


def test_a_text_without_a_token_is_an_error_with_its_place(tmp_path):
    folder = save_tiny_model("bert", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", special_tokens=[]
    )
    tokenizer.save_pretrained(folder)
    encoder = _load(folder)
    with pytest.raises(OptionError, match="text 1: '' has no token"):
        encoder.encode(["dog", "", "cat"])
    with pytest.raises(OptionError, match="text 0: '  ' has no token"):
        encoder.encode("  ")
    assert np.abs(encoder.encode(["dog", "cat"])).max() > 0


@pytest.mark.parametrize("family", sorted(dtypes.FLOAT32_ONLY & set(CONFIG_MAPPING)))
def test_a_family_without_bfloat16_runs_in_float32_unless_bfloat16_is_asked_for(
    tmp_path, monkeypatch, family
):
    save_family(family, tmp_path)
    monkeypatch.setattr(dtypes, "native_dtype", lambda device="auto": "bfloat16")
    assert _load(tmp_path, dtype="auto").space.dtype == "float32"
    with pytest.raises(
        OptionError, match=f"bfloat16: {family} computes in float32 alone; say dtype float32"
    ):
        _load(tmp_path, dtype="bfloat16")


def test_a_model_that_fails_in_bfloat16_is_loaded_in_float32_unless_bfloat16_is_asked_for(
    tiny, monkeypatch
):
    monkeypatch.setattr(dtypes, "native_dtype", lambda device="auto": "bfloat16")
    run = PaddedRunner.run

    def fails(self: PaddedRunner, batch: Batch) -> LayerStates:
        if self.dtype == torch.bfloat16:
            raise RuntimeError("mat1 and mat2 must have the same dtype\nsecond line")
        return run(self, batch)

    monkeypatch.setattr(PaddedRunner, "run", fails)
    assert _load(tiny["albert"], dtype="auto").space.dtype == "float32"
    with pytest.raises(
        OptionError,
        match=r"albert: it cannot run \(mat1 .* dtype\) in torch.bfloat16; say dtype float32$",
    ):
        _load(tiny["albert"], dtype="bfloat16")


def test_a_model_that_is_never_twice_the_same_is_refused(tiny, monkeypatch):
    run = PaddedRunner.run

    def noisy(self: PaddedRunner, batch: Batch) -> LayerStates:
        found = run(self, batch)
        return LayerStates(
            {layer: state + torch.randn_like(state) for layer, state in found.layers.items()}
        )

    monkeypatch.setattr(PaddedRunner, "run", noisy)
    with pytest.raises(OptionError, match="other vectors from one pass to the next"):
        _load(tiny["albert"])


def test_neighbours_that_leak_into_a_text_leave_it_a_batch_of_its_own(tiny, monkeypatch):
    run = PaddedRunner.run

    def leaking(self: PaddedRunner, batch: Batch) -> LayerStates:
        found = run(self, batch)
        return LayerStates(
            {layer: state + (len(batch.rows) - 1) for layer, state in found.layers.items()}
        )

    usual = _load(tiny["albert"]).encode(TEXTS)
    monkeypatch.setattr(PaddedRunner, "run", leaking)
    encoder = _load(tiny["albert"])
    assert encoder.together is BatchSharing.ALONE
    assert np.allclose(encoder.encode(TEXTS), usual, atol=1e-5)


@pytest.mark.parametrize(
    "family", ["gpt2", "ctrl", "codegen", "gptj", "mpt", "luke", "lilt", "openai-gpt", "led"]
)
def test_texts_are_cut_at_the_positions_that_a_model_has(tmp_path, family):
    save_family(family, tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=None)
    encoder, limit = _load(tmp_path), resolve_model(str(tmp_path)).position_limit
    assert encoder.space.max_tokens == limit
    assert LONGEST_OF_A_FAMILY - 4 <= limit <= LONGEST_OF_A_FAMILY
    tokenized = encoder.tokenize([" ".join("ab" * 80)])
    assert tokenized.lengths.tolist() == [limit]
    assert np.isfinite(encoder.embed(tokenized).vectors).all()


LAYER_POOLERS = {"mean:layer=1": (1,), "first-last": (0, 3), "last2": (2, 3)}


@pytest.mark.parametrize("pooler", LAYER_POOLERS)
@pytest.mark.parametrize("family", ["longformer", "big_bird", "gpt2"])
def test_layers_of_models_that_fill_texts_up_inside(tmp_path, family, pooler):
    save_family(family, tmp_path)
    kind, tokenizer = model_class(family), AutoTokenizer.from_pretrained(tmp_path)
    texts, expected = ["a b c", " ".join("abcde" * 10), "f"], []
    for text in texts:
        model = kind.from_pretrained(tmp_path).eval()
        with torch.inference_mode():
            states = model(
                **tokenizer(text, return_tensors="pt"), output_hidden_states=True
            ).hidden_states
        expected.append(
            torch.stack([states[layer][0].mean(0) for layer in LAYER_POOLERS[pooler]])
            .mean(0)
            .numpy()
        )
    found = _load(tmp_path, pooler).encode(texts)
    assert np.abs(found - np.stack(expected)).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "opt"])
def test_ditto_where_attention_is_read_from_the_blocks(tmp_path, family):
    save_family(family, tmp_path)
    model = model_class(family).from_pretrained(tmp_path, attn_implementation="eager").eval()
    tokenizer, texts, expected = (
        AutoTokenizer.from_pretrained(tmp_path),
        ["a b c", "d e f g h", "f"],
        [],
    )
    for text in texts:
        with torch.inference_mode():
            out = model(
                **tokenizer(text, return_tensors="pt"),
                output_attentions=True,
                output_hidden_states=True,
            )
        own = out.attentions[1][0, 2].diagonal()
        expected.append((own[:, None] * out.last_hidden_state[0]).sum(0).numpy())
    found = _load(tmp_path, "ditto:2-3,states=last").encode(texts)
    assert np.abs(found - np.stack(expected)).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("family", "pooler"),
    [
        ("squeezebert", "mean:layer=1"),
        ("squeezebert", "ditto:1-1"),
        ("bart", "last2"),
        ("big_bird", "ditto:1-1"),
    ],
)
def test_blocks_that_cannot_be_read_are_one_line(tmp_path, family, pooler):
    save_family(family, tmp_path)
    assert _load(tmp_path).encode("a b").shape == (64,)
    with pytest.raises(OptionError, match="; use") as caught:
        _load(tmp_path, pooler)
    assert "\n" not in str(caught.value)


def test_the_tanh_pooler_of_big_bird(tmp_path):
    save_family("big_bird", tmp_path)
    model, tokenizer = (
        AutoModel.from_pretrained(tmp_path).eval(),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    with torch.inference_mode():
        expected = model(**tokenizer("a b c", return_tensors="pt")).pooler_output[0].numpy()
    assert np.abs(_load(tmp_path, "cls-tanh").encode("a b c") - expected).max() <= 1e-5


@pytest.mark.parametrize("family", ["xlm", "flaubert"])
def test_a_token_with_the_id_of_padding_is_a_token(tmp_path, family):
    """Without a mask, XLM and FlauBERT take each token with that id for padding, also in a batch
    without any.
    """
    save_family(family, tmp_path)
    tokenizer, texts = AutoTokenizer.from_pretrained(tmp_path), ["a b c", "d e b"]
    edit_json(tmp_path / "config.json", pad_token_id=tokenizer("a b c")["input_ids"][2])
    model, expected = model_class(family).from_pretrained(tmp_path).eval(), []
    for text in texts:
        with torch.inference_mode():
            expected.append(
                model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
            )
    for batch in (texts, ["a b c d e f g", *texts]):
        found = _load(tmp_path).encode(batch)[-2:]
        assert np.abs(found - np.stack(expected)).max() <= 2e-5 * np.abs(expected).max()


def test_static_vectors_of_a_quantized_embedding(tmp_path):
    """I-BERT's embedding gives rows and their scale; the rows are those of its matrix."""
    save_family("ibert", tmp_path)
    model, tokenizer = AutoModel.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    rows = model.get_input_embeddings().weight[tokenizer("a b c")["input_ids"]].detach()
    assert np.allclose(_load(tmp_path, "static").encode("a b c"), rows.mean(0).numpy(), atol=1e-6)


def test_factors_of_an_embedding_matrix_are_no_static_vectors(tmp_path):
    """NeoMME's embedding module gives the narrow factor."""
    save_family("neomme", tmp_path)
    with pytest.raises(
        OptionError, match="neomme have 8 components, not the 64 of its configuration; use a pooler"
    ):
        _load(tmp_path, "static")


@pytest.mark.parametrize("family", ["rembert", "albert", "electra"])
def test_static_vectors_have_the_width_of_the_embedding_matrix(tmp_path, family):
    save_family(family, tmp_path)
    model, tokenizer = AutoModel.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    rows = model.get_input_embeddings()(tokenizer("a b c", return_tensors="pt")["input_ids"])[
        0
    ].detach()
    encoder = _load(tmp_path, "static")
    assert encoder.dim == rows.shape[1]
    assert np.allclose(encoder.encode("a b c"), rows.mean(0).numpy(), atol=1e-6)


def test_a_small_model_is_loaded_and_tried_by_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = []
    run = PaddedRunner.run

    def counted(self: PaddedRunner, batch: Batch) -> LayerStates:
        cores.append(torch.get_num_threads())
        return run(self, batch)

    monkeypatch.setattr(PaddedRunner, "run", counted)
    folder = save_tiny_model("bert", tmp_path / "model")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _load(folder)
        assert set(cores) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
