"""The worker images: read by a linter, pinned to what is tested, and with all that they copy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
_PARTS = re.split(r"^FROM .* AS ([\w-]+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
STAGES = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))


def steps(*stages: str) -> list[tuple[str, str]]:
    """The instructions of some stages with what follows them, in order; what is written over
    several lines as one.
    """
    lines = "".join(STAGES[stage] for stage in stages).replace("\\\n", " ").splitlines()
    return [
        (word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word.isupper()
    ]


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint") or shutil.which(
        "hadolint", path=str(Path(sys.executable).parent)
    )
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    for path in sorted((ROOT / "deploy").rglob("*Dockerfile*")):
        ended = subprocess.run([hadolint, "--no-color", path], capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (0, ""), path


def test_beam_is_the_version_that_is_tested() -> None:
    pinned = re.search(
        r"^apache-beam==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    said = re.search(r"^ARG BEAM=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert pinned
    assert said
    assert pinned[1] == said[1]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    dockerfiles = "".join(path.read_text() for path in (ROOT / "deploy").rglob("Dockerfile"))
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfiles, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(source == name or source.startswith(f"{name}/") for name in allowed), source


def test_a_stage_declares_the_arguments_that_it_uses() -> None:
    """A builder need not hand the arguments of one stage on to another: where they are missing they
    are empty.
    """
    for name in STAGES:
        known = {"PATH", "HOME"}
        for word, rest in steps(name):
            if word == "RUN":
                assert set(re.findall(r"\$\{?([A-Z_]+)", rest)) <= known, f"{name}: {rest}"
            known |= {rest.partition("=")[0]} if word == "ARG" else set()


def test_both_images_are_made_alike() -> None:
    for target, extra in (("cpu", "cpu"), ("cuda", "gpu")):
        stage = STAGES[target]
        assert f"pip install -c constraints.txt '.[{extra},gcp]'" in stage
        assert 'bash /opt/bake.sh "$MODEL" "$REVISION"\nENV HF_HUB_OFFLINE=1\nUSER 1000\n' in stage
        assert '\nENTRYPOINT ["/opt/apache/beam/boot"]\n' in stage


def test_the_gpu_image_finds_the_nodes_driver_and_has_one_cuda() -> None:
    """Container-Optimized OS mounts the driver where no program looks by itself."""
    stage = STAGES["cuda"]
    assert "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64\n" in stage
    assert "PATH=/usr/local/nvidia/bin:$PATH " in stage
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in stage
    assert re.search(r"^ARG TORCH_INDEX=https://download\.pytorch\.org/whl/cu12\d$", stage, re.M)
    assert '--extra-index-url "$TORCH_INDEX" torch ' in stage
    assert "assert torch.version.cuda" in stage, "a build without CUDA fails"
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    assert pins["faiss-gpu"] == pins["faiss-cpu"]


def test_the_image_that_checks_a_gpu_has_the_benchmarks() -> None:
    stage = STAGES["gpu-check"]
    assert "FROM cuda AS gpu-check" in DOCKERFILE.read_text()
    assert 'ENTRYPOINT ["python", "-m", "benchmarks.gpu_check"]' in stage
    assert ("COPY", "benchmarks benchmarks") in steps("gpu-check")


@pytest.mark.slow
def test_what_checks_a_gpu_is_all_in_its_image(tmp_path: Path) -> None:
    for word, rest in steps("base", "gpu-check"):
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            for source in sources:
                (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, tmp_path / source)
    out = tmp_path / "out"
    out.mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--help"],
        capture_output=True,
        text=True,
        cwd=out,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
    )
    assert ended.returncode == 0, ended.stderr
    assert "--minutes" in ended.stdout


@pytest.mark.slow
def test_baking_the_default_model() -> None:
    script = ROOT / "deploy" / "docker" / "bake.sh"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ended = subprocess.run(
        ["bash", script, "minilm", ""], capture_output=True, text=True, cwd=ROOT, env={"PATH": path}
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("minilm: 384 dimensions, space ")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_steps_of_a_worker_image_in_a_plain_environment(tmp_path: Path) -> None:
    """What the image copies is all that installing, baking and starting take; packages come from
    the tests' own.
    """
    app, opt = tmp_path / "app", tmp_path / "opt"
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "shared.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages"))
    )
    run = {"PATH": f"{python.parent}:/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = []
    for word, rest in steps("base", "cpu"):
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            into = (
                opt / target.removeprefix("/opt/") if target.startswith("/opt/") else app / target
            )
            for source in sources:
                place = into / Path(source).name if target.endswith("/") else into
                place.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
        if word == "RUN" and "pip install" in rest:
            install = [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
                ".",
            ]
            done.append(subprocess.run(install, cwd=app, env=run, capture_output=True, text=True))
        if word == "RUN" and "bake.sh" in rest:
            command = rest.replace("/opt/", f"{opt}/")
            bake = {**run, "MODEL": "minilm", "REVISION": ""}
            done.append(
                subprocess.run(
                    ["sh", "-c", command], cwd=tmp_path, env=bake, capture_output=True, text=True
                )
            )
    assert [ended.returncode for ended in done] == [0, 0], [ended.stderr for ended in done]
    assert done[1].stdout.startswith("minilm: 384 dimensions, space ")
    worker = subprocess.run(
        [python.parent / "sentence-beam-worker"], env=run, capture_output=True, text=True
    )
    assert (worker.returncode, "--provision_endpoint" in worker.stderr) == (2, True), worker.stderr
    night = subprocess.run(
        [app / "deploy" / "nightly" / "nightly.sh"], env=run, capture_output=True, text=True
    )
    assert (night.returncode, "set INPUT" in night.stderr) == (1, True), night.stderr


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_fails_the_build(tmp_path: Path) -> None:
    script = ROOT / "deploy" / "docker" / "bake.sh"
    (tmp_path / "hf").write_text("#!/bin/sh\nexit 0\n")  # a download that brought nothing
    (tmp_path / "hf").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    run = {"PATH": path, "HF_HOME": str(tmp_path / "home")}
    ended = subprocess.run(
        ["bash", script, "nobody/nothing"], capture_output=True, text=True, cwd=ROOT, env=run
    )
    assert ended.returncode != 0
