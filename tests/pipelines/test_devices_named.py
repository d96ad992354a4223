"""The device of a run: in the manifest, the result and the summary; a GPU that is not used."""

import json
from pathlib import Path

import pytest
import torch
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.variants import variants

from sentence_beam.transforms.base import nvidia
from sentence_beam.transforms.base.nvidia import Driver
from sentence_beam.transforms.space import Machine
from sentence_beam.transforms.steps.options.embed import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import put_on_workers, resolve_run

L4 = "type:nvidia-l4;count:1;install-nvidia-driver:5xx"


@pytest.fixture
def file(inputs: Path) -> Path:
    path = inputs / "a.parquet"
    write_parquet(path, sentences(20))
    return path


def manifest_of(store: Path) -> dict:
    return json.loads((store / "manifest.json").read_text())


def test_a_run_names_its_device(embed: Run, file: Path, store: Path) -> None:
    out = embed(file, "--dtype", "float32").ok().out
    assert manifest_of(store)["versions"]["device"] == "cpu"
    assert " on cpu; the limit is " in out
    assert "the CPU did the work" not in out
    (result,) = store.glob("runs/*/result.json")
    assert json.loads(result.read_text())["devices"] == ["cpu"]
    (sidecar,) = store.glob("sidecars/*.json")
    assert json.loads(sidecar.read_text())["device"] == "cpu"


def test_a_run_that_embeds_nothing_names_none(embed: Run, file: Path, store: Path) -> None:
    embed(file, "--dtype", "float32").ok()
    out = embed(file, "--dtype", "float32").ok().out
    assert "device" not in manifest_of(store)["versions"]
    assert " on cpu" not in out


@variants(
    ("cuda", "visible", "said"),
    [("12.6", None, True), (None, None, False), ("12.6", "", False)],
    kept=(0, 2),
)
def test_a_gpu_that_is_not_used_is_a_line_of_the_summary(
    cuda: str | None,
    visible: str | None,
    said: bool,
    embed: Run,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    driver = Driver("535.104.05", False, (0, 0), 0)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr("sentence_beam.pipelines.common.summary.find_driver", lambda: driver)
    monkeypatch.setattr(nvidia, "find_driver", lambda: driver)
    out = " ".join(embed(file, "--dtype", "float32").ok().out.split())
    assert ("the CPU did the work: NVIDIA driver 535.104.05 is here" in out) == said
    out = " ".join(
        embed(file, "--dtype", "float32", "--device", "cpu", "--reembed").ok().out.split()
    )
    assert "the CPU did the work" not in out, "it was requested"


def test_with_an_accelerator_a_gpu_that_torch_does_not_see_ends_the_run(
    embed: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvidia, "find_driver", lambda: Driver("470.82.01", True, (11, 4), 1))
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    embed(file, "--accelerator", L4, "--dtype", "float32").failed(
        2, "470.82.01 (up to CUDA 11.4) is older than torch", "--device cpu"
    )
    embed(file, "--accelerator", L4, "--dtype", "float32", "--device", "cpu").ok()


@pytest.mark.parametrize(
    ("local", "accelerator", "machine"),
    [
        (False, L4, Machine("cuda")),
        (False, None, Machine("auto", refuses_unseen_gpu=True)),
        (True, L4, Machine("auto", refuses_unseen_gpu=True)),
        (True, None, Machine("auto")),
    ],
)
def test_the_accelerator_of_an_engine_is_the_device_of_its_workers_and_of_no_plan(
    local: bool, accelerator: str | None, machine: Machine, file: Path, store: Path, model: Path
) -> None:
    options = EmbedOptions(
        input=(str(file),),
        store=str(store),
        model=str(model),
        dtype="float32",
        accelerator=accelerator,
    )
    planned = resolve_run(options, None, "20261122T153748_123Z-fff87f", local=local)
    assert planned.job.machine == Machine("auto")
    assert put_on_workers(planned, accelerator).job.machine == machine
