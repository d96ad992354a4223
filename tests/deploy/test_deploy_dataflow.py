"""The Flex Template's parameters are the command's flags; its scripts are sound."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from sentence_beam.pipelines.common.beam_parser import make_beam_parser
from sentence_beam.pipelines.common.embed_options import parser

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "dataflow"
METADATA = json.loads((FOLDER / "metadata.json").read_text(encoding="utf8"))
PARAMETERS: dict[str, dict[str, Any]] = {item["name"]: item for item in METADATA["parameters"]}
OF_BEAM = {
    "sdk_container_image", "disk_size_gb", "number_of_worker_harness_threads", "dataflow_service_options", "experiments",
}  # fmt: skip
REQUIRED = {"store", "sdk_container_image"}  # the default store is a folder, which workers lack


def flags() -> dict[str, argparse.Action]:
    """Flags of `embed` that take a value, which is all that a template can give."""
    taking = (action for action in parser()._actions if action.option_strings and action.nargs != 0)
    named = {
        action.option_strings[-1].removeprefix("--"): action
        for action in taking
        if action.dest != "config"
    }
    return {
        name: action
        for name, action in named.items()
        if not isinstance(action, argparse.BooleanOptionalAction)
    }


def test_every_flag_that_takes_a_value_is_a_parameter_and_no_other() -> None:
    assert set(PARAMETERS) == set(flags()) | OF_BEAM
    assert set(make_beam_parser().actions) >= {f"--{name}" for name in OF_BEAM}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_says_of_its_flag_what_is_so(name: str) -> None:
    item = PARAMETERS[name]
    assert set(item) <= {"name", "label", "helpText", "isOptional", "regexes"}
    assert item["label"]
    assert item["helpText"]
    flag = flags().get(name)
    assert item.get("isOptional", False) == (name not in REQUIRED)
    patterns = [re.compile(pattern) for pattern in item.get("regexes", [])]
    for choice in (flag.choices if flag is not None else None) or ():
        assert all(pattern.fullmatch(choice) for pattern in patterns)
    if flag is not None and flag.choices:
        assert not any(pattern.fullmatch("another") for pattern in patterns)


def test_the_services_own_schema_takes_the_metadata() -> None:
    """Dataflow's API, as Google's client library describes it; what it does not know is an
    error.
    """
    dataflow = pytest.importorskip("google.cloud.dataflow_v1beta3")
    read = json_format.ParseDict(METADATA, dataflow.TemplateMetadata.pb()())
    assert len(read.parameters) == len(PARAMETERS)
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**METADATA, "nothing": 1}, dataflow.TemplateMetadata.pb()())


@pytest.mark.slow
def test_gcloud_builds_the_template(tmp_path: Path) -> None:
    """`--print-only` writes nothing and needs neither network nor account."""
    found = shutil.which("gcloud")
    if found is None:
        pytest.skip("gcloud is not installed")
    build = [
        found,
        "dataflow",
        "flex-template",
        "build",
        "gs://b/t.json",
        "--project=p",
        "--image=i",
        "--print-only",
    ]
    build += ["--sdk-language=PYTHON", f"--metadata-file={FOLDER / 'metadata.json'}"]
    env = {**os.environ, "CLOUDSDK_CONFIG": str(tmp_path), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    ended = subprocess.run(build, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout[ended.stdout.index("{") :])
    assert said["sdkInfo"]["language"] == "PYTHON"
    assert [item["name"] for item in said["metadata"]["parameters"]] == list(PARAMETERS)


VALUES = {
    "input": "gs://b/{a,b}/*.parquet", "store": "gs://b/store", "like": "s3://b/other", "limit": "10", "input-version": "17", "max-tokens": "512", "dim": "64",
    "unit-tokens": "256k", "tokens-per-batch": "16384", "max-rejects": "0.01", "max-deletes": "1",
    "device": "cuda:own", "max-drift": "1e-7", "max-answer-change": ".05", "max-unknown": "0.3",
    "budget": "2.5B", "max-bad-files": "2", "disk_size_gb": "100", "number_of_worker_harness_threads": "2", "sdk_container_image": "a.pkg.dev/p/r/sentence-beam:cuda",
}  # fmt: skip


def test_values_that_patterns_let_through_are_values_that_the_command_takes() -> None:
    with_patterns = {
        name for name, item in PARAMETERS.items() if "regexes" in item and not _choices(name)
    }
    assert with_patterns == set(VALUES)
    for name, value in VALUES.items():
        assert all(re.fullmatch(pattern, value) for pattern in PARAMETERS[name]["regexes"]), name
    assert not re.fullmatch(PARAMETERS["input"]["regexes"][0], "gs://b/a.parquet,gs://b/c.parquet")
    ours = [f"--{name}={value}" for name, value in VALUES.items() if name not in OF_BEAM]
    assert parser().parse_args(ours).input == [VALUES["input"]]


def _choices(name: str) -> Any:
    flag = flags().get(name)
    return flag is not None and flag.choices


@pytest.fixture
def gcloud(tmp_path: Path) -> Path:
    """A folder with a `gcloud` that writes down how it was called, and finds the template in its
    place.
    """
    script = tmp_path / "bin" / "gcloud"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done >> {tmp_path}/calls\n')
    script.chmod(0o755)
    return tmp_path


def run(gcloud: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    where = {"PROJECT": "p", "REGION": "r", "BUCKET": "b", "IMAGE": "i:cuda"} | environment
    env = {"PATH": f"{gcloud / 'bin'}:/usr/bin:/bin"} | {
        name: value for name, value in where.items() if value != "-"
    }
    return subprocess.run(
        [str(FOLDER / "run.sh"), *arguments], env=env, capture_output=True, text=True
    )


def test_the_script_hands_its_options_over_as_parameters(gcloud: Path) -> None:
    done = run(
        gcloud, "--input", "gs://b/{a,b}/*.parquet", "--store=gs://b/store", "--keep-columns", "a,b"
    )
    assert (done.returncode, done.stderr) == (0, "")
    calls = (gcloud / "calls").read_text().splitlines()
    (given,) = [word for word in calls if word.startswith("^~^")]
    pairs = dict(pair.split("=", 1) for pair in given.removeprefix("^~^").split("~"))
    assert pairs["input"] == "gs://b/{a,b}/*.parquet"
    assert pairs["keep-columns"] == "a,b"
    assert pairs["accelerator"].startswith("type:nvidia-l4")
    assert "machine_type:g2-standard-8" in pairs["accelerator"]
    assert calls[calls.index("--worker-machine-type") + 1].startswith("n2-"), (
        "a GPU machine for steps that need none"
    )
    assert pairs["disk_size_gb"] == "100"
    assert set(pairs) <= set(PARAMETERS)
    run(gcloud, "--input=gs://b/in", "--store=gs://b/store", ACCELERATOR="")
    assert "accelerator" not in (gcloud / "calls").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("accelerator", "dtype"),
    [(None, "bfloat16"), ("type:nvidia-tesla-t4;count:1;install-nvidia-driver:5xx", "float16")],
)
def test_the_scripts_dtype_is_one_that_the_gpu_multiplies_and_its_driver_has_a_version(
    gcloud: Path, accelerator: str | None, dtype: str
) -> None:
    where = {} if accelerator is None else {"ACCELERATOR": accelerator}
    run(gcloud, "--input=gs://b/in", "--store=gs://b/store", **where)
    called = (gcloud / "calls").read_text()
    assert f"~dtype={dtype}~" in called
    assert "install-nvidia-driver:5xx" in called


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("pkg.dev/p/x:cuda", "pkg.dev/p/x"),
        ("localhost:5000/x", "localhost:5000/x"),
        ("pkg.dev/x@sha256:0f", "pkg.dev/x"),
    ],
)
def test_the_launcher_is_built_from_the_cpu_image_beside_the_workers_one(
    gcloud: Path, image: str, name: str
) -> None:
    shutil.copy(gcloud / "bin" / "gcloud", gcloud / "bin" / "docker")
    done = run(gcloud, "--input=gs://b/in", "--store=gs://b/store", IMAGE=image, BUILD="1")
    assert (done.returncode, done.stderr) == (0, "")
    calls = (gcloud / "calls").read_text().splitlines()
    assert f"IMAGE={name}:cpu" in calls
    assert calls.count(f"{name}:launcher") == 3, "built, pushed and named in the template"
    assert f"sdk_container_image={image}~" in calls[-1]


def test_the_script_says_what_it_lacks(gcloud: Path) -> None:
    assert "the worker image" in run(gcloud, IMAGE="-").stderr
    stray = run(gcloud, "gs://b/a.parquet")
    assert (stray.returncode, stray.stderr.count("\n")) == (2, 1)
    assert not (gcloud / "calls").exists() or "run" not in (gcloud / "calls").read_text().split()


def test_the_launcher_runs_embed_from_the_worker_image(tmp_path: Path) -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf8")
    assert "FROM ${IMAGE}" in text
    assert "FLEX_TEMPLATE_PYTHON_PY_FILE=/template/main.py" in text
    main = [sys.executable, str(FOLDER / "main.py")]
    done = subprocess.run([*main, "--limt", "3"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sentence-beam embed: unknown option --limt; did you mean --limit?\n"
