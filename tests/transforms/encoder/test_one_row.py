"""The pass without padding through a model's own code, its kernel a loop over texts, against texts
run alone.

Covers transforms/encoder/own_attention.py.
Covers transforms/encoder/texts_attention.py.
"""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.families import make_model, word_tokenizer
from helpers.family_survey import TEXTS, TOLERANCE, error_of, load, reference, several_ways

from sentence_beam.transforms.encoder import Encoder, choose_runner, texts_attention, varlen
from sentence_beam.transforms.encoder.one_row import OneRowRunner
from sentence_beam.transforms.encoder.texts_attention import attend_text_by_text

Window = tuple[int, int]
GROUPED = {"num_key_value_heads": 2}
ALL, BEFORE = (-1, -1), (-1, 0)
# A family, how it differs from the small model of its defaults, how many tokens its tokens see
# before and after themselves, and whether heads share keys and values.
TAKEN: dict[str, tuple[dict[str, Any], set[Window], bool]] = {
    "distilbert": ({}, {ALL}, False),
    "modernbert": ({"local_attention": 16, "global_attn_every_n_layers": 2}, {ALL, (8, 8)}, False),
    "gte": ({}, {ALL}, False),
    "nomic_bert": ({}, {ALL}, False),
    "qwen2": (GROUPED, {BEFORE}, True),
    "qwen3": (GROUPED, {BEFORE}, True),
    "llama": (GROUPED, {BEFORE}, True),
    "mistral": ({**GROUPED, "sliding_window": 8}, {(7, 0)}, True),
    "gemma": ({"num_key_value_heads": 1}, {BEFORE}, True),
    "gemma3_text": (
        {**GROUPED, "use_bidirectional_attention": True, "sliding_window": 8},
        {(4, 4)},
        True,
    ),
}
PADDED: dict[str, tuple[dict[str, Any], str]] = {
    "t5": ({}, "takes no positions"),
    "mpnet": ({}, "cannot be exchanged"),
    "gemma2": ({}, "takes softcap"),
    "lfm2": ({"layer_types": ["conv", "full_attention", "conv"]}, "other states than alone"),
    "llama4_text": ({}, "masks hide other tokens"),
}
QUICK = {
    "modernbert",
    "nomic_bert",
    "qwen3",
    "mistral",
    "gemma3_text",
    "gemma2",
    "lfm2",
    "llama4_text",
}


def _families(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[Window, bool]]:
    """The pass that a GPU takes; what its kernel is asked for: windows, and whether heads share
    keys.
    """
    found: set[tuple[Window, bool]] = set()

    def kernel(
        *parts: Any, window_size: Window, enable_gqa: bool = False, **said: Any
    ) -> torch.Tensor:
        found.add((window_size, enable_gqa))
        return attend_text_by_text(*parts, window_size=window_size, enable_gqa=enable_gqa, **said)

    monkeypatch.setattr(choose_runner, "choose_kernel", lambda _: kernel)
    return found


def _save(family: str, folder: Path, **changes: Any) -> Path:
    make_model(family, **changes).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


def _runs_in_one_row(encoder: Encoder) -> bool:
    return isinstance(encoder.replicas[0].forward.runner, OneRowRunner)


@pytest.mark.parametrize("family", _families(TAKEN))
def test_texts_in_one_row_have_the_vectors_that_they_have_alone(
    family: str, tmp_path: Path, asked: Any
) -> None:
    changes, windows, grouped = TAKEN[family]
    folder = _save(family, tmp_path / family, **changes)
    encoder = load(folder)
    assert _runs_in_one_row(encoder)
    asked.clear()
    expected = reference(family, folder)
    assert max(error_of(vectors, expected) for vectors in several_ways(encoder)) <= TOLERANCE
    assert asked == {(window, grouped) for window in windows}
    stats = encoder.embed(encoder.tokenize(TEXTS)).stats
    assert stats.padded == stats.real


@pytest.mark.parametrize("family", _families(PADDED))
def test_a_family_that_cannot_is_padded_and_says_why(
    family: str, tmp_path: Path, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    changes, reason = PADDED[family]
    folder = _save(family, tmp_path / family, **changes)
    encoder = load(folder)
    assert not _runs_in_one_row(encoder)
    (said,) = [record.getMessage() for record in caplog.records if "padded" in record.getMessage()]
    assert reason in said
    assert f" {family}: " in said
    assert error_of(encoder.encode(TEXTS), reference(family, folder)) <= TOLERANCE


def test_a_window_longer_than_the_texts_that_are_tried_is_compared_with_the_masks(
    tmp_path: Path, asked: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _save("mistral", tmp_path / "m", sliding_window=70)
    assert _runs_in_one_row(load(folder))
    monkeypatch.setattr(texts_attention, "find_window", lambda *_: BEFORE)
    assert not _runs_in_one_row(load(folder))
    assert "masks hide other tokens" in caplog.text


def test_an_older_torch_has_no_word_for_heads_that_share_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(
        *parts: Any, return_aux: Any = None, scale: float | None = None, window_size: Window = ALL
    ) -> Any:
        grouped = parts[0].shape[1] != parts[1].shape[1]
        said = {"scale": scale, "window_size": window_size, "enable_gqa": grouped}
        return attend_text_by_text(*parts, return_aux=return_aux, **said)  # type: ignore[arg-type]

    monkeypatch.setattr(varlen, "find_kernel", lambda: older)
    on_gpu = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16)
    kernel = varlen.choose_kernel(SimpleNamespace(parameters=lambda: iter([on_gpu])))
    monkeypatch.setattr(choose_runner, "choose_kernel", lambda _: kernel)
    folder = _save("qwen3", tmp_path / "m", **GROUPED)
    encoder = load(folder)
    assert _runs_in_one_row(encoder), encoder.replicas[0].forward.objection
    assert error_of(encoder.encode(TEXTS), reference("qwen3", folder)) <= TOLERANCE


@pytest.mark.parametrize(("family", "fused"), [("qwen3", True), ("gemma", False)])
def test_norms_are_one_kernel_each_where_that_gives_the_same(
    family: str, fused: bool, tmp_path: Path, asked: Any
) -> None:
    encoder = load(_save(family, tmp_path / family, **TAKEN[family][0]))
    runner: Any = encoder.replicas[0].forward.runner
    norms = [part for part in runner.model.modules() if type(part).__name__.endswith("RMSNorm")]
    assert norms
    assert {"forward" in vars(norm) for norm in norms} == {fused}
    with torch.inference_mode():
        for norm in norms:
            states = torch.randn(7, norm.weight.shape[0])
            torch.testing.assert_close(
                norm(states), type(norm).forward(norm, states), rtol=1e-5, atol=1e-5
            )


def test_a_kernel_with_other_windows_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def one_more(*parts: Any, window_size: Window, **said: Any) -> torch.Tensor:
        before, after = window_size
        return attend_text_by_text(
            *parts, window_size=(before + 1 if before >= 0 else before, after), **said
        )

    monkeypatch.setattr(choose_runner, "choose_kernel", lambda _: one_more)
    folder = _save("mistral", tmp_path / "m", sliding_window=70)
    assert not _runs_in_one_row(load(folder))
    assert "fails at windows of (3, 0)" in caplog.text


@pytest.mark.parametrize(
    "pooler", ["first-last", "last-token", "sbert-wk:start=1,window=1", "static", "ditto:2-3"]
)
def test_other_layers_and_poolers(
    pooler: str, tmp_path: Path, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(_save("qwen3", tmp_path / "m", **GROUPED))
    found = Encoder.load(folder, pooler=pooler, dtype="float32", device="cpu")
    assert _runs_in_one_row(found) == (pooler != "static")
    monkeypatch.setattr(choose_runner, "choose_kernel", lambda _: None)
    padded = Encoder.load(folder, pooler=pooler, dtype="float32", device="cpu")
    np.testing.assert_allclose(found.encode(TEXTS), padded.encode(TEXTS), atol=2e-5)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("modernbert", TAKEN["modernbert"][0]), ("distilbert", {}), ("afmoe", {})],
)
def test_single_heads(
    family: str, changes: Any, tmp_path: Path, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(_save(family, tmp_path / "m", **changes))
    encoders = [Encoder.load(folder, pooler="ditto:2-1", dtype="float32", device="cpu")]
    monkeypatch.setattr(choose_runner, "choose_kernel", lambda _: None)
    encoders.append(Encoder.load(folder, pooler="ditto:2-1", dtype="float32", device="cpu"))
    assert [_runs_in_one_row(encoder) for encoder in encoders] == [True, False]
    np.testing.assert_allclose(*(encoder.encode(TEXTS) for encoder in encoders), atol=2e-5)


def test_bits_do_not_depend_on_neighbours(tmp_path: Path, asked: Any) -> None:
    folder = str(_save("modernbert", tmp_path / "m"))
    encoder = Encoder.load(folder, dtype="float32", device="cpu", deterministic=True)
    assert _runs_in_one_row(encoder)
    together = encoder.encode(TEXTS)
    np.testing.assert_array_equal(encoder.encode(TEXTS[::-1]), together[::-1])
    np.testing.assert_array_equal(encoder.encode(TEXTS[:4]), together[:4])
    np.testing.assert_array_equal(encoder.encode(TEXTS[2]), together[2])
