"""The distribution: what is in it, that it works from a bare folder, and what an import costs."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pipelines
import transforms

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "MANIFEST.in",
    "pipelines",
    "transforms",
    "tests",
    "deploy",
)


def build(kind: str, folder: Path) -> Path:
    """`sdist` or `wheel` of the sources in a folder, by the build backend that is installed here."""
    out = folder / "out"
    code = f"import setuptools.build_meta as backend, sys; backend.build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=folder, check=True, capture_output=True)
    (path,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return path


def version() -> str:
    """The version that setup.py says."""
    found = re.search(r'version="([^"]+)"', (ROOT / "setup.py").read_text(encoding="utf8"))
    assert found
    return found[1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from a copy of the tree."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    return build("sdist", tree)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as a worker of an engine builds it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    return build("wheel", tree)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution alone in it; what it depends on comes from this environment."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


def run(installed: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command that finds the installed distribution first, outside of the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True)


def python_files(names: list[str]) -> set[str]:
    return {name for name in names if name.endswith(".py") and "/" in name}


def sources() -> set[str]:
    packages = (ROOT / "pipelines", ROOT / "transforms")
    return {path.relative_to(ROOT).as_posix() for package in packages for path in package.rglob("*.py")}


def test_the_sdist_holds_the_two_packages_and_no_other(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert python_files(names) == sources()
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= set(names)


def test_the_wheel_holds_the_two_packages_their_types_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert python_files(names) == sources()
    assert {"pipelines/py.typed", "transforms/py.typed"} <= set(names)
    assert any(name.endswith("/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"pipelines", "transforms", f"sentence_beam-{version()}.dist-info"}


def test_the_version_is_said_once(wheel: Path, installed: Path) -> None:
    code = "import importlib.metadata as m; print(m.version('sentence-beam'))"
    assert run(installed, sys.executable, "-c", code).stdout.strip() == version()
    newest = re.search(r"^## ([0-9]\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf8"), re.MULTILINE)
    assert newest
    assert newest[1] == version()


def test_the_command_works(installed: Path) -> None:
    command = str(installed / "bin" / "sentence-beam")
    assert "usage: sentence-beam COMMAND" in run(installed, command, "--help").stdout
    done = run(installed, command, "files", "--store", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds no store" in done.stderr


def test_transforms_and_pipelines_are_of_this_distribution(installed: Path) -> None:
    assert Path(transforms.__file__).parent == ROOT / "transforms"
    assert Path(pipelines.__file__).parent == ROOT / "pipelines"
    code = (
        "import importlib.metadata as m, pipelines, transforms\n"
        "owners = m.packages_distributions()\n"
        "print({*owners['transforms'], *owners['pipelines']}, transforms.__file__, pipelines.__file__)"
    )
    files = [str(installed / package / "__init__.py") for package in ("transforms", "pipelines")]
    assert run(installed, sys.executable, "-c", code).stdout.strip() == f"{{'sentence-beam'}} {' '.join(files)}"


def test_an_import_a_spec_and_a_space_load_neither_torch_nor_faiss() -> None:
    code = (
        "import importlib, pkgutil, sys, pipelines, transforms.beam\n"
        "for module in pkgutil.iter_modules(pipelines.__path__):\n"
        "    importlib.import_module(f'pipelines.{module.name}')\n"
        "from transforms.space import parse_pooler, resolve_model, resolve_space\n"
        "resolve_space(resolve_model('minilm'), pooler=str(parse_pooler('mean+max:count=no-special')))\n"
        "print(sorted({'torch', 'faiss', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def requirements(name: str, extras: set[str], path: list[str] | None = None) -> list[Requirement]:
    """What a distribution asks for with some of its extras, here."""
    (found, *_) = metadata.distributions(name=name, path=path or sys.path)
    asked = [Requirement(line) for line in found.requires or []]
    return [r for r in asked if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in {"", *extras})]


def test_everything_that_is_installed_is_pinned_to_a_version_that_fits(installed: Path) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf8"), re.MULTILINE))
    pins = {canonicalize_name(name): pin for name, pin in pins.items()}
    left, seen = requirements("sentence-beam", {"cpu", "dev", "docs"}, [str(installed)]), set()
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        assert name in pins, f"constraints.txt lacks {name}"
        assert wanted.specifier.contains(pins[name]), f"constraints.txt: {name} {pins[name]} is not {wanted.specifier}"
        if (name, *sorted(wanted.extras)) not in seen:
            seen.add((name, *sorted(wanted.extras)))
            left += requirements(name, wanted.extras)
    assert {"torch", "faiss-cpu", "pytest", "numpy"} <= {name for name, *_ in seen}
