"""The worker images: read by a linter, pinned to what is tested, and with all that they copy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    for path in sorted((ROOT / "deploy").rglob("*Dockerfile*")):
        ended = subprocess.run([hadolint, "--no-color", path], capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (0, ""), path


def test_beam_is_the_version_that_is_tested() -> None:
    pinned = re.search(r"^apache-beam==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    said = re.search(r"^ARG BEAM=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert pinned
    assert said
    assert pinned[1] == said[1]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    dockerfiles = "".join(path.read_text() for path in (ROOT / "deploy").rglob("Dockerfile"))
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfiles, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(source == name or source.startswith(f"{name}/") for name in allowed), source


def test_both_images_are_made_alike() -> None:
    parts = re.split(r"^FROM .* AS (\w+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
    stages = dict(zip(parts[1::2], parts[2::2], strict=True))
    for target, extra in (("cpu", "cpu"), ("cuda", "gpu")):
        stage = stages[target]
        assert f"pip install -c constraints.txt '.[{extra},gcp]'" in stage
        assert 'bash /opt/bake.sh "$MODEL" "$REVISION"\nENV HF_HUB_OFFLINE=1\nUSER 1000\n' in stage
        assert '\nENTRYPOINT ["/opt/apache/beam/boot"]\n' in stage


def test_baking_the_default_model() -> None:
    script = ROOT / "deploy" / "docker" / "bake.sh"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ended = subprocess.run(["bash", script, "minilm", ""], capture_output=True, text=True, cwd=ROOT, env={"PATH": path})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("minilm: 384 dimensions, space ")


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_fails_the_build(tmp_path: Path) -> None:
    script = ROOT / "deploy" / "docker" / "bake.sh"
    (tmp_path / "hf").write_text("#!/bin/sh\nexit 0\n")  # a download that brought nothing
    (tmp_path / "hf").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    run = {"PATH": path, "HF_HOME": str(tmp_path / "home")}
    ended = subprocess.run(["bash", script, "nobody/nothing"], capture_output=True, text=True, cwd=ROOT, env=run)
    assert ended.returncode != 0
