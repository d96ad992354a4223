"""An adapter, merged as docs/models.md says, gives what sentence-transformers gives for it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import TEXTS, save_tiny_model

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"


@pytest.mark.slow
def test_the_steps_of_the_page_make_an_encoder_of_an_adapter(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="the extra train is not installed")
    from sentence_transformers import SentenceTransformer

    base = save_tiny_model("roberta", tmp_path / "base")
    folder = tmp_path / "adapter"
    model = SentenceTransformer(str(base), device="cpu")
    torch.manual_seed(1)
    config = peft.LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False)
    model.add_adapter(config)
    model.save_pretrained(str(folder))
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    with pytest.raises(OptionError, match=f"adapter of {base} without its base"):
        Encoder.load(str(folder))

    lines = PAGE.read_text().partition("      from peft ")[2].partition("\n\n  Then")[0]
    steps = "\n".join(line.strip() for line in f"from peft {lines}".splitlines())
    exec(steps, {"BASE": str(base), "FOLDER": str(folder)})
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).unlink()
    found = Encoder.load(str(folder), dtype="float32", device="cpu").encode(TEXTS)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    plain = Encoder.load(str(base), dtype="float32", device="cpu").encode(TEXTS)
    assert np.abs(plain - expected).max() > 1e-2 * np.abs(expected).max()
