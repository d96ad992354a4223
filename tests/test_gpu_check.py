"""`make gpu-check`, with two CPU devices in the place of a GPU and very small models."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.corpora import sentences

from benchmarks import gpu_check
from benchmarks.gpu_exact import Finding, Scope

SHAPE = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
EXTENT = gpu_check.Extent(
    Scope(3, 100, 200, ("bert", "t5"), ("ditto:1-2",), ("whitening",)),
    replace(
        gpu_check.CPU.load,
        tokens={"small": 64},
        lengths=(16,),
        texts=4,
        rows=20,
        index_rows=0,
        shapes={"small": ("bert", SHAPE)},
    ),
)


def test_it_runs_through_and_writes_a_table_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        gpu_check, "real_texts", lambda _, count: [f"{row} {text}" for row, text in enumerate(sentences(count))]
    )
    code = gpu_check.main(["--cpu", "--output", str(tmp_path / "found")], EXTENT)
    printed = capsys.readouterr().out
    assert code == 0, printed
    found = {each["what"]: each for each in json.loads((tmp_path / "found.json").read_text())["findings"]}
    wanted = ["bert, without padding", "t5, padded: it takes no positions", "pooler ditto:1-2", "calibration whitening"]
    wanted += ["bert --deterministic", "out of memory"]
    wanted += ["small, 16 tokens", "small, real mix, over sentence-transformers", "embed, end to end"]
    assert [what for what in wanted if what not in found] == []
    assert not [each for each in found.values() if each["holds"] is False]
    bars = json.loads((tmp_path / "found.json").read_text())["bars"]
    assert bars["MiniLM, 128 tokens"] == {"bar": 0.35, "measured": None, "holds": None}
    assert {name: each["bar"] for name, each in bars.items() if "512" not in name} == {
        "MiniLM, 128 tokens": 0.35,
        "BERT-base, 128 tokens": 0.6,
        "Qwen3-0.6B, 128 tokens": 0.5,
        "embed, end to end": 0.8,
        **{f"{name}, real mix, over sentence-transformers": 2 for name in ("MiniLM", "BERT-base", "Qwen3-0.6B")},
    }
    assert all(each["measured"] is None for each in bars.values()), "two CPUs are no measurement"
    assert all(each["seconds"] >= 0 for each in found.values())
    table = (tmp_path / "found.md").read_text()
    assert all(f"| {what} |" in table and what in printed for what in found)


def test_what_is_wrong_is_named_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("no kernel image is available")

    parts = [broken, lambda: [Finding("one", "3", "<= 2", False), Finding("two", "1", "<= 2", True)]]
    monkeypatch.setattr(gpu_check, "_findings", lambda *_: iter(parts))
    assert gpu_check.main(["--cpu", "--output", str(tmp_path / "found")], EXTENT) == 1
    assert "3 lines, 2 not as they should be: RuntimeError; one" in capsys.readouterr().out
    assert "| one | 3 | <= 2 | **no** |" in (tmp_path / "found.md").read_text()


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "--cpu" in capsys.readouterr().err
