"""Folders that are not one whole encoder are refused in one line, before anything is loaded."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.tiny_models import edit_json, save_tiny_model

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space import resolve_model, resolve_space

MODULES = (
    '[{"idx": 0, "name": "0", "path": "%s", "type": "sentence_transformers.models.Transformer"}%s]'
)
POOLING = (
    ', {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}'
)


def _adapter(folder: Path, base: str = "org/base") -> None:
    edit_json(folder / "adapter_config.json", peft_type="LORA", base_model_name_or_path=base)
    (folder / "adapter_model.safetensors").write_bytes(b"")


def _in_a_module(root: Path) -> None:
    """A model of sentence-transformers whose transformer lies in a folder, with an adapter."""
    save_tiny_model("bert", root / "0_Transformer")
    (root / "modules.json").write_text(MODULES % ("0_Transformer", POOLING))
    (root / "1_Pooling").mkdir()
    edit_json(root / "1_Pooling" / "config.json", embedding_dimension=24, pooling_mode="mean")
    _adapter(root / "0_Transformer")


def _beside(root: Path) -> None:
    _adapter(save_tiny_model("bert", root))


def _alone(root: Path) -> None:
    """An adapter that sentence-transformers saved: modules and a tokenizer, and no base."""
    save_tiny_model("bert", root)
    (root / "modules.json").write_text(MODULES % ("", ""))
    for name in ("config.json", "model.safetensors"):
        (root / name).unlink()
    _adapter(root)


def _without_a_config(root: Path) -> None:
    _beside(root)
    (root / "adapter_config.json").unlink()


ADAPTERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "beside a base": (_beside, "adapter_config.json: the folder holds an adapter of org/base,"),
    "without a base": (_alone, "adapter_config.json: .* an adapter of org/base without its base"),
    "in a module": (_in_a_module, "0_Transformer/adapter_config.json: .* of org/base,"),
    "without its config": (_without_a_config, "adapter_model.safetensors: .* an adapter,"),
}


@pytest.mark.parametrize("place", ADAPTERS)
def test_an_adapter_is_refused_with_its_file_and_what_mends_it(tmp_path: Path, place: str) -> None:
    save, said = ADAPTERS[place]
    save(tmp_path)
    line = _refused(tmp_path)
    assert re.search(said, line)
    assert "merge_and_unload" in line


def test_settings_that_name_other_files_are_refused(tmp_path: Path) -> None:
    folder = save_tiny_model("bert", tmp_path)
    edit_json(folder / "config.json", transformers_weights="model.safetensors")
    resolve_model(str(folder))
    edit_json(folder / "config.json", transformers_weights="other.safetensors")
    assert "config.json: transformers_weights names 'other.safetensors'" in _refused(folder)
    edit_json(folder / "config.json", transformers_weights=None)
    edit_json(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.0.json"])
    assert "tokenizer_config.json: fast_tokenizer_files names files" in _refused(folder)


SCORER = {"architectures": ["BertForSequenceClassification"]}
ONE_LABEL = {**SCORER, "id2label": {"0": "LABEL_0"}}
CROSS_ENCODERS = {
    "one label": ONE_LABEL,
    "one label, as a number": {**SCORER, "num_labels": 1},
    "labels of pairs": {**SCORER, "sbert_ce_default_activation_function": "torch.nn.Identity"},
    "labels of pairs, newer": {**SCORER, "sentence_transformers": {"version": "4.1.0"}},
}
ENCODERS = {
    "labels": {**SCORER, "id2label": {"0": "no", "1": "neutral", "2": "yes"}},
    "two labels, which config.json leaves out": SCORER,
    "a head for words": {"architectures": ["BertForMaskedLM"]},
}


@pytest.mark.parametrize("kind", CROSS_ENCODERS)
def test_a_cross_encoder_is_refused_unless_its_folder_has_a_pooling(
    tmp_path: Path, kind: str
) -> None:
    folder = save_tiny_model("bert", tmp_path)
    edit_json(folder / "config.json", **CROSS_ENCODERS[kind])
    assert "config.json: the model is a cross-encoder" in _refused(folder)
    (folder / "modules.json").write_text(MODULES % ("", POOLING))
    (folder / "1_Pooling").mkdir()
    edit_json(folder / "1_Pooling" / "config.json", embedding_dimension=24, pooling_mode="mean")
    resolve_space(resolve_model(str(folder)))


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_model_with_another_head_is_an_encoder(tmp_path: Path, kind: str) -> None:
    folder = save_tiny_model("bert", tmp_path)
    known = resolve_space(resolve_model(str(folder))).id
    edit_json(folder / "config.json", **ENCODERS[kind])
    assert resolve_space(resolve_model(str(folder))).id == known


def test_a_cross_encoder_by_its_modules_is_refused(tmp_path: Path) -> None:
    """As sentence-transformers saves one."""
    folder = save_tiny_model("bert", tmp_path)
    (folder / "modules.json").write_text(MODULES % ("", ""))
    edit_json(folder / "sentence_bert_config.json", transformer_task="sequence-classification")
    assert "sentence_bert_config.json: the model is a cross-encoder" in _refused(folder)


def _refused(folder: Path) -> str:
    """The line with which a folder is refused."""
    with pytest.raises(OptionError) as caught:
        resolve_space(resolve_model(str(folder)))
    line = str(caught.value)
    assert line.startswith(str(folder))
    assert "\n" not in line
    return line
