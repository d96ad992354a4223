"""Counts, memory, threads and options of one encoder."""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from helpers.tiny_models import TEXTS, edit_json, save_tiny_model
from safetensors.torch import load_file, save_file

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.batches import cut_rows, plan_batches
from sentence_beam.transforms.pooling import Status
from sentence_beam.transforms.space import parse_pooler, resolve_model, resolve_space


def _load(tiny, family="bert", **options):
    return Encoder.load(str(tiny[family]), dtype="float32", device="cpu", **options)


def test_no_rows_and_empty_texts(tiny):
    encoder = _load(tiny)
    assert encoder.encode([]).shape == (0, encoder.dim)
    assert encoder.encode([]).dtype == np.float32
    assert np.isfinite(encoder.encode([""])).all()


@pytest.mark.parametrize("family", ["bert", "roberta", "xlnet", "t5"])
def test_counts_before_truncation_and_closing_token(tiny, family):
    cut, whole = (
        _load(tiny, family, max_tokens=5).tokenize(TEXTS),
        _load(tiny, family).tokenize(TEXTS),
    )
    assert (cut.counts == whole.lengths).all()
    assert (cut.truncated == (whole.lengths > 5)).all()
    assert cut.lengths.max() == 5
    assert (cut.ids[cut.offsets[1:] - 1] == whole.ids[-1]).all()
    assert cut.ids.dtype == np.int32
    assert cut.counts.dtype == np.int32
    assert cut.offsets.dtype == np.int64


def test_norms_and_pooled_vectors_can_be_recovered(tiny):
    plain = _load(tiny, pooler="mean", normalize=False)
    pooled = plain.encode(TEXTS)
    tokens = plain.tokenize(TEXTS)
    unit = _load(tiny, pooler="mean").embed(tokens)
    assert unit.pooled is None
    assert np.allclose(unit.vectors * unit.norms[:, None], pooled, atol=1e-6)
    assert np.allclose(np.linalg.norm(unit.vectors, axis=1), 1, atol=1e-6)
    short = _load(tiny, pooler="mean", truncate_dim=5).embed(tokens)
    assert np.allclose(short.pooled, pooled, atol=1e-6)
    assert np.allclose(
        short.vectors,
        pooled[:, :5] / np.linalg.norm(pooled[:, :5], axis=1, keepdims=True),
        atol=1e-6,
    )
    assert np.allclose(short.norms, np.linalg.norm(pooled, axis=1), atol=1e-6)
    assert (unit.status == Status.OK).all()


def test_progress_and_stats_add_up(tiny):
    for family, padding in (("bert", 0), ("mpnet", 1)):
        encoder = _load(tiny, family, tokens_per_batch=24)
        calls = []
        tokens = encoder.tokenize(TEXTS)
        done = encoder.embed(
            tokens, progress=lambda rows, real, calls=calls: calls.append((rows, real))
        )
        assert sum(rows for rows, _ in calls) == len(TEXTS)
        assert sum(real for _, real in calls) == len(tokens.ids) == done.stats.real
        assert (done.stats.padded > done.stats.real) == padding
        assert done.stats.batches == len(calls)


def test_batches_respect_the_budget_and_cover_every_row_once(tiny):
    tokens = _load(tiny).tokenize([TEXTS[i % 7] for i in range(50)])
    batches = list(plan_batches(tokens, 40))
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(50))
    assert all(batch.width * len(batch.rows) <= 40 for batch in batches)
    assert all((np.diff(batch.lengths) <= 0).all() for batch in batches)
    assert cut_rows(np.array([50, 9, 9, 9, 9]), 20) == [0, 1, 3, 5]


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")]
)
def test_out_of_memory_halves_the_batch_and_goes_on(tiny, family, error, monkeypatch):
    encoder = _load(tiny, family)
    expected = encoder.embed(encoder.tokenize(TEXTS))
    run = encoder.replicas[0].forward.runner.run

    def limited(batch):
        if len(batch.rows) > 2:
            raise error
        return run(batch)

    monkeypatch.setattr(encoder.replicas[0].forward.runner, "run", limited)
    done = encoder.embed(encoder.tokenize(TEXTS))
    assert np.allclose(done.vectors, expected.vectors, atol=1e-6)
    assert done.stats.oom_splits == 3
    assert done.stats.batches == 4
    assert done.stats.real == expected.stats.real


def test_what_a_smaller_batch_cannot_mend_is_raised(tiny, monkeypatch):
    encoder = _load(tiny)

    def fail(message):
        def run(batch):
            raise RuntimeError(message)

        monkeypatch.setattr(encoder.replicas[0].forward.runner, "run", run)

    fail("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        encoder.encode(["dog"])
    fail("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"):
        encoder.encode(TEXTS)


def test_one_thread_tokenizes_while_another_embeds(tiny):
    encoder = _load(tiny)
    tokens = encoder.tokenize(TEXTS)
    expected = encoder.embed(tokens).vectors
    seen = []
    worker = threading.Thread(
        target=lambda: seen.extend(encoder.tokenize(TEXTS).counts.sum() for _ in range(50))
    )
    worker.start()
    rounds = [encoder.embed(tokens).vectors for _ in range(20)]
    worker.join()
    assert set(seen) == {tokens.counts.sum()}
    assert all(np.allclose(vectors, expected, atol=1e-6) for vectors in rounds)


def test_encoder_can_be_dropped(tiny):
    encoder = _load(tiny, "mpnet")
    reference = weakref.ref(encoder)
    del encoder
    gc.collect()
    assert reference() is None


def test_space_is_the_one_resolved_from_the_files(tiny):
    options = {"prompt": "a ", "max_tokens": 9, "truncate_dim": 6, "normalize": False}
    encoder = _load(tiny, pooler="cls+max", **options)
    assert encoder.space == resolve_space(
        resolve_model(str(tiny["bert"])),
        pooler=parse_pooler("cls+max"),
        dtype="float32",
        **options,
    )
    assert encoder.encode(["dog"]).shape == (1, encoder.dim) == (1, 6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "tpu"}, "tpu"),
        ({"dtype": "int4"}, "bfloat16"),
        ({"tokens_per_batch": 0}, "tokens per batch"),
        ({"max_tokens": 2}, "2 special tokens"),
        ({"max_tokens": 4000}, "4000"),
        ({"truncate_dim": 99}, "99"),
        ({"pooler": "mean:layer=9"}, "layers 0 to 3"),
        ({"prompt": "a", "prompt_name": "b"}, "both"),
    ],
)
def test_bad_options_are_one_line(tiny, options, words):
    with pytest.raises(OptionError, match=words) as caught:
        Encoder.load(str(tiny["bert"]), **options)
    assert "\n" not in str(caught.value)


def test_damaged_models_are_one_line(tmp_path):
    folder = save_tiny_model("bert", tmp_path / "m")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(OptionError, match="is not a safetensors file") as caught:
        Encoder.load(str(folder))
    assert "\n" not in str(caught.value)
    (folder / "model.safetensors").write_bytes(weights)
    edit_json(folder / "config.json", num_hidden_layers=4)
    with pytest.raises(OptionError, match=r"layer\.3"):
        Encoder.load(str(folder))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(OptionError, match="tokenizer"):
        Encoder.load(str(folder))


def test_a_weight_of_nan_is_named(tmp_path):
    folder = save_tiny_model("bert", tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.attention.self.query.weight"].fill_(float("nan"))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        OptionError, match=r"NaN.*layer\.0\.attention\.self\.query\.weight"
    ) as caught:
        Encoder.load(str(folder))
    assert str(folder) in str(caught.value)


def test_states_beyond_the_dtype_are_one_line(tmp_path):
    folder = save_tiny_model("bert", tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.weight"].fill_(60_000)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for pooler in ("mean:layer=2", "ditto:3-1,states=static"):
        assert np.isfinite(
            Encoder.load(str(folder), pooler=pooler, dtype="float32", device="cpu").encode(["dog"])
        ).all()
        with pytest.raises(OptionError, match="float16.*say dtype float32") as caught:
            Encoder.load(str(folder), pooler=pooler, dtype="float16", device="cpu")
        assert str(folder) in str(caught.value)
