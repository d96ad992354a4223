"""What a program finds changed after it used this project: nothing. That imports change nothing is
in tests/test_layering.py.
"""

import csv
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sentence_beam.transforms.corpus import Columns, match_inputs
from sentence_beam.transforms.corpus.collection_rows import read_files


def test_the_limit_of_csv_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n\n" + f"{'long ' * 40_000},1\nshort,2\n" * 3)
    (file,) = match_inputs(str(tmp_path / "a.csv"))
    before = csv.field_size_limit()
    assert [len(unit.texts) for unit in read_files([file], Columns())] == [6]
    assert csv.field_size_limit() == before
    first, second = (read_files([file], Columns()) for _ in range(2))
    next(first)
    next(second)
    first.close()  # given up midway, while another one is at work
    second.close()
    assert csv.field_size_limit() == before


def test_a_training_puts_back_which_gpus_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_beam.transforms.training.training_run import on_one_gpu

    gpu = SimpleNamespace(type="cuda", index=3)
    monkeypatch.setattr(
        "sentence_beam.transforms.encoder.devices.resolve_device", lambda asked: gpu
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with on_one_gpu("cuda:3"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with on_one_gpu("cuda"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
