"""`make gpu-check`, with two CPU devices in the place of a GPU and very small models."""

import ast
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.clock import Clock
from helpers.corpora import sentences
from helpers.stub_device import see_gpus

from benchmarks import common, gpu_check, gpu_machine, gpu_shapes, gpu_speed, random_models
from benchmarks.gpu_check import Part
from benchmarks.gpu_exact import Finding, Scope, tried
from benchmarks.gpu_machine import Place, measure_peak
from sentence_beam import pipelines
from sentence_beam.transforms.base.errors import MissingExtraError
from sentence_beam.transforms.encoder import Encoder

SHAPE = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
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


@pytest.mark.slow
def test_it_runs_through_and_writes_a_table_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        gpu_check,
        "real_texts",
        lambda _, count: [f"{row} {text}" for row, text in enumerate(sentences(count))],
    )
    code = gpu_check.main(["--cpu", "--output", str(tmp_path / "found")], EXTENT)
    printed = capsys.readouterr().out
    assert code == 0, printed
    found = {
        each["what"]: each for each in json.loads((tmp_path / "found.json").read_text())["findings"]
    }
    wanted = [
        "bert, without padding",
        "t5, padded: it takes no positions",
        "pooler ditto:1-2, bert, without padding",
        "late pieces, without padding",
        "bert in float16, without padding",
        "CNN over the tokens, without padding",
        "LSTM over the tokens, without padding",
        "pooler ditto:1-2",
        "calibration whitening",
    ]
    wanted += ["bert --deterministic", "out of memory"]
    wanted += ["small --deterministic, first, middle, last", "small, 2 GPUs over one"]
    wanted += ["small, parts of a pass, 128 tokens"]
    wanted += [
        "small, 16 tokens",
        "small, real mix, over sentence-transformers",
        "embed, end to end",
    ]
    assert [what for what in wanted if what not in found] == []
    assert not [each for each in found.values() if each["holds"] is False]
    bars = json.loads((tmp_path / "found.json").read_text())["bars"]
    assert bars["MiniLM, 128 tokens"] == {"bar": 0.35, "measured": None, "holds": None}
    assert {name: each["bar"] for name, each in bars.items() if "512" not in name} == {
        "MiniLM, 128 tokens": 0.35,
        "BERT-base, 128 tokens": 0.6,
        "Qwen3-0.6B, 128 tokens": 0.5,
        "embed, end to end": 0.8,
        **{
            f"{name}, real mix, over sentence-transformers": 2
            for name in ("MiniLM", "BERT-base", "Qwen3-0.6B")
        },
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

    def two() -> list[Finding]:
        return [Finding("one", "3", "<= 2", False), Finding("two", "1", "<= 2", True)]

    parts = [Part("broken", 0.5, broken), Part("two", 1.0, two)]
    monkeypatch.setattr(gpu_check, "check_parts", lambda *_: iter(parts))
    assert gpu_check.main(["--cpu", "--output", str(tmp_path / "found")], EXTENT) == 1
    assert "3 lines, 2 not as they should be: RuntimeError; one" in capsys.readouterr().out
    assert "| one | 3 | <= 2 | **no** |" in (tmp_path / "found.md").read_text()


def test_each_part_has_its_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(gpu_check, "time", clock)

    def lines(name: str, each: float) -> Callable[[], Iterator[Finding]]:
        def work() -> Iterator[Finding]:
            for number in range(9):
                clock.now += each
                yield Finding(f"{name} {number}", "1", "")

        return work

    parts = [
        Part("slow", 0.5, lines("slow", 20)),  # half of sixty seconds
        Part("quick", 0.5, lines("quick", 1)),
        Part("last", 1.0, lines("last", 10)),
        Part("late", 1.0, lines("late", 1)),
    ]
    monkeypatch.setattr(gpu_check, "check_parts", lambda *_: iter(parts))
    gpu_check.main(["--cpu", "--minutes", "1", "--output", str(tmp_path / "found")], EXTENT)
    found = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert [each["what"] for each in found] == [
        *("slow 0", "slow 1", "what is left of slow"),
        *(f"quick {number}" for number in range(9)),
        *("last 0", "last 1", "what is left of last", "what is left of late"),
    ]
    assert (found[0]["seconds"], found[3]["seconds"]) == (20, 1)


def test_without_time_every_part_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "real_texts", lambda _, count: sentences(20))
    code = gpu_check.main(
        ["--cpu", "--minutes", "0.0001", "--output", str(tmp_path / "found")], EXTENT
    )
    found = json.loads((tmp_path / "found.json").read_text())["findings"]
    left = {each["what"] for each in found if each["what"].startswith("what is left of")}
    assert code == 0
    assert {"what is left of embed", "what is left of several GPUs"} <= left


def test_a_gpu_without_bfloat16_gets_float16_and_an_eighth_of_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_machine, "resolve_devices", lambda _: [])
    see_gpus(monkeypatch, 2)
    capabilities = {"T4": (7, 5), "L4": (8, 9)}
    found = {}
    for name, capability in capabilities.items():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, it=capability: it)
        found[name] = gpu_machine.gpu_place()
    assert (found["T4"].dtype, found["T4"].packs) == ("float16", False)
    assert (found["L4"].dtype, found["L4"].packs, found["L4"].gpus) == ("bfloat16", True, 2)
    smaller = gpu_check.GPU.smaller().load
    assert smaller.rows == gpu_check.GPU.load.rows // 8
    assert smaller.tokens["Qwen3-0.6B"] == gpu_check.GPU.load.tokens["Qwen3-0.6B"] // 8


def test_the_machine_is_described_by_torch_and_by_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    properties = SimpleNamespace(name="NVIDIA H200", total_memory=141 << 30, major=9, minor=0)
    see_gpus(monkeypatch, 1, lambda _: properties)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 5)
    printed = "0, NVIDIA H200, 580.65.06, 9.0, 1980 MHz, 1980 MHz, 612.30 W, 700.00 W, 61"
    monkeypatch.setattr(
        gpu_machine.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{printed}\n")
    )
    by_torch, by_driver = gpu_machine.facts_of_gpus()
    assert (by_torch["name"], by_torch["capability"]) == ("NVIDIA H200", "9.0")
    assert by_driver["driver_version"] == "580.65.06"
    assert (by_driver["clocks.sm"], by_driver["power.draw"]) == ("1980 MHz", "612.30 W")
    monkeypatch.setattr(gpu_machine.subprocess, "run", _not_installed)
    assert gpu_machine.facts_of_gpus() == [by_torch]


def _not_installed(*_: Any, **__: Any) -> None:
    raise FileNotFoundError("nvidia-smi")


def test_the_peak_is_that_of_products_of_known_size(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([0.1, 0.5, 0.4])  # one product, then five of them twice
    monkeypatch.setattr(gpu_machine, "seconds", lambda work: work() or next(took))
    peak = measure_peak("cpu", "float32", side=64, least=0.5)
    assert peak == pytest.approx(2 * 64**3 * 5 / 0.4 / 1e12)


@pytest.mark.parametrize("moves", [False, True])
def test_a_vector_that_depends_on_its_place_in_the_batch_is_found(moves: bool) -> None:
    def embed(tokenized: Any) -> Any:
        ids = tokenized.ids.reshape(len(tokenized.counts), -1).astype(np.float32)
        vectors = ids / 7
        if moves:
            vectors[-1] *= 1 + 2e-7
        return SimpleNamespace(vectors=vectors)

    encoder: Any = SimpleNamespace(tokens_per_batch=64, embed=embed)
    if moves:
        assert not gpu_shapes.is_same_anywhere(encoder, 16)
    else:
        assert gpu_shapes.is_same_anywhere(encoder, 16)


def test_operators_are_timed_apart() -> None:
    one = torch.randn(64, 64)
    took = gpu_shapes.time_of_operators(lambda: torch.nn.functional.gelu(one @ one), on_gpu=False)
    assert took["mm"] > 0
    assert took["gelu"] > 0


def test_the_measured_peak_is_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    see_gpus(monkeypatch, 1)
    monkeypatch.setattr(gpu_check, "facts_of_gpus", list)
    monkeypatch.setattr(gpu_check, "gpu_place", lambda: Place("cuda:0", "cuda:0", None))
    monkeypatch.setattr(gpu_check, "measure_peak", lambda *_: 701.4)
    monkeypatch.setattr(gpu_check, "check_parts", lambda *_: iter([]))
    for given, peak, how in (([], 701.4, "measured"), (["--peak-tflops", "790"], 790, "given")):
        assert gpu_check.main([*given, "--output", str(tmp_path / "found")], EXTENT) == 0
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["machine"]["peak_tflops"] == peak
        assert found["findings"][0]["measured"] == f"{peak:.0f} TFLOP/s"
        assert found["findings"][0]["bar"] == how
        assert f"{peak:.0f} TFLOP/s" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    see_gpus(monkeypatch, 0)
    assert gpu_check.main([]) == 2
    assert "--cpu" in capsys.readouterr().err


class Memory:
    """A GPU's memory, whose allocator heeds a fraction that it is told, or does not."""

    def __init__(self, heeds: bool) -> None:
        self.heeds, self.total, self.taken, self.fraction = heeds, 80 << 30, 10 << 30, 1.0

    def limit(self, fraction: float, _: int) -> None:
        assert 0 <= fraction <= 1
        self.fraction = fraction

    def empty(self, size: int, **_: Any) -> "Block":
        if self.taken + size > self.total * (self.fraction if self.heeds else 1):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Block(self, size)

    @property
    def left(self) -> int:
        return int(self.total * (self.fraction if self.heeds else 1)) - self.taken


class Block:
    """A part of it, until nobody has it."""

    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.size = memory, size
        memory.taken += size

    def __del__(self) -> None:
        self.memory.taken -= self.size


@pytest.mark.parametrize("heeds", [True, False])
def test_little_memory_is_left_whatever_the_allocator_heeds_and_all_of_it_is_given_back(
    heeds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(heeds)
    monkeypatch.setattr(torch, "empty", memory.empty)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: memory.taken)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", memory.limit)
    monkeypatch.setattr(
        torch.cuda, "mem_get_info", lambda _: (memory.total - memory.taken, memory.total)
    )
    properties = SimpleNamespace(total_memory=memory.total)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    with gpu_check.scarce_on_gpu(None):  # type: ignore[arg-type]
        assert 0 < memory.left <= 4 * gpu_check.ROOM
    assert memory.left == 70 << 30


def test_a_line_that_fails_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def broken() -> Finding:
        assert not written, "nothing is found yet"
        raise RuntimeError("no kernel image is available")

    def then() -> Iterator[Finding]:
        yield tried("MiniLM, 128 tokens", broken)
        # for whoever has to end it here
        written.append(json.loads((tmp_path / "found.json").read_text()))
        yield Finding("embed, end to end", "0.85", ">= 0.8", True, 0.85)

    monkeypatch.setattr(gpu_check, "check_parts", lambda *_: iter([Part("then", 1.0, then)]))
    assert gpu_check.main(["--cpu", "--output", str(tmp_path / "found")], EXTENT) == 1
    assert [each["what"] for each in written[0]["findings"]] == ["MiniLM, 128 tokens"]
    assert "no kernel image" in written[0]["findings"][0]["measured"]
    bars = json.loads((tmp_path / "found.json").read_text())["bars"]
    assert bars["MiniLM, 128 tokens"] == {"bar": 0.35, "measured": None, "holds": None}
    assert bars["embed, end to end"] == {"bar": 0.8, "measured": 0.85, "holds": True}


def test_there_are_texts_enough_wherever_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "paragraphs", lambda: iter(["one", "two", "one"]))
    assert common.real_texts(None, 5) == ["one", "two", "2 one", "2 two", "3 one"]


def test_vectors_and_speed_need_no_more_than_the_encoder_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `embed` has besides is said not to be measured where it is not installed."""
    allowed = (
        "benchmarks.common",
        "benchmarks.gpu_",
        "benchmarks.random_models",
        "sentence_beam.transforms.encoder",
        "sentence_beam.transforms.index",
    )
    allowed += ("sentence_beam.transforms.calibration", "pyarrow", "numpy", "torch")
    for path in Path(gpu_check.__file__).parent.glob("gpu_*.py"):
        tops = (
            each
            for each in ast.parse(path.read_text()).body
            if isinstance(each, (ast.Import, ast.ImportFrom))
        )
        names = [
            each.module or "" if isinstance(each, ast.ImportFrom) else each.names[0].name
            for each in tops
        ]
        more = [name for name in names if name.split(".")[0] not in sys.stdlib_module_names]
        assert [name for name in more if not name.startswith(allowed)] == []
    monkeypatch.delattr(pipelines, "embed", raising=False)  # where another test has imported it
    for gone in (
        "benchmarks.index",
        "sentence_beam.pipelines.embed",
        "sentence_beam.transforms.beam",
    ):
        monkeypatch.setitem(sys.modules, gone, None)
    place = Place("cpu", "cpu", None)
    ended = tried("one", lambda: gpu_speed.end_to_end(EXTENT.load, ["a"], place, tmp_path))
    indexed = tried("two", lambda: gpu_speed.index(EXTENT.load, place, tmp_path))
    assert (ended.measured, ended.holds, indexed.measured, indexed.holds) == (
        "not measured",
        None,
    ) * 2


def test_without_minilms_package_a_tokenizer_is_made_from_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> None:
        raise MissingExtraError("not installed")

    monkeypatch.setattr(random_models, "resolve_model", missing)
    monkeypatch.setattr(random_models, "real_texts", lambda *_: sentences(200))
    random_models.word_pieces.cache_clear()
    try:
        prompt = 'prompt:template=This sentence : "{text}" means [MASK].'
        folder = random_models.save_model("bert", tmp_path / "m", **SHAPE).folder
    finally:
        random_models.word_pieces.cache_clear()
    for pooler in ("mean", "remove-biases", prompt):
        assert Encoder.load(str(folder), pooler=pooler, dtype="float32").encode(
            ["a dog", ""]
        ).shape == (2, 32)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    assert rows > random_models.VOCABULARY, (
        "tokens at random are below it, and a GPU does not forgive one that is not"
    )


def test_a_poolers_layer_counts_no_operations(tmp_path: Path) -> None:
    found = random_models.save_model("bert", tmp_path / "m", **SHAPE)
    assert found.weights == 2 * (4 * 32 * 32 + 2 * 32 * 32)


def _refused(**_: Any) -> None:
    raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def test_units_are_finished_beside_the_computation_and_a_profiler_that_sees_nothing_costs_no_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenized = random_models.alike(10, 3, 9)
    monkeypatch.setattr(gpu_speed, "UNIT_TOKENS", 9)
    seen: list[tuple[str, int]] = []

    def step(name: str) -> Any:
        return lambda unit: seen.append((name, len(unit.counts))) or unit

    monkeypatch.setattr(torch.profiler, "profile", _refused)
    encoder: Any = SimpleNamespace(plan=step("plan"), start=step("start"), finish=step("finish"))
    place = Place("cuda:0", "cuda:0", 790.0)
    finding = gpu_speed.rate_of("MiniLM, 128 tokens", encoder, tokenized, 1e9, place, 0.35)
    assert sorted(size for name, size in seen if name == "finish")[-1] <= 3
    assert {
        name: sum(size for other, size in seen if other == name) for name, _ in seen
    } == dict.fromkeys(("plan", "start", "finish"), 3 * 10), "tried once, timed twice"
    assert "host not seen" in finding.measured
    assert finding.value is not None
