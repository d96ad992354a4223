"""The layers: who may import whom, read from the source."""

import ast
import contextlib
import functools
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from helpers.module_names import OF_A_FOLDER

ROOT = Path(__file__).resolve().parents[1]
# What each layer may import, itself aside.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "tokens": {"base"},
    "storage": {"base"},
    "space": {"base"},
    "pooling": {"base", "space"},
    "calibration": {"base", "space"},
    "encoder": {"base", "tokens", "space", "pooling", "calibration"},
    "corpus": {"base", "tokens", "storage", "space"},
    "index": {"base"},
    "store": {"base", "storage", "space", "calibration", "corpus", "index"},
    "options": {"base", "space", "corpus", "index", "store"},
    "search": {"base", "storage", "space", "encoder", "corpus", "index", "store"},
    "push": {"base", "storage", "space", "corpus", "store"},
    "report": {"base", "storage", "space", "store"},
    "serve": {"base", "storage", "store", "search", "report"},
    "evaluation": {
        "base",
        "storage",
        "space",
        "pooling",
        "calibration",
        "encoder",
        "corpus",
        "index",
        "store",
        "search",
        "report",
        "options",
    },
    "training": {
        "base",
        "storage",
        "space",
        "pooling",
        "encoder",
        "corpus",
        "store",
        "evaluation",
        "report",
        "options",
    },
    "steps": {
        "base",
        "storage",
        "space",
        "pooling",
        "calibration",
        "encoder",
        "corpus",
        "index",
        "store",
        "search",
        "report",
        "options",
    },
    "beam": {"base", "space", "encoder", "corpus", "index", "store", "steps"},
}
LAYERS = list(ALLOWED)
# What each room of `steps` may import of the others.
ROOMS: dict[str, set[str]] = {
    "index": set(),
    "options": {"index"},
    "embed": {"options"},
    "plan": {"options", "embed", "index"},
    "joins": {"options", "index"},
    "fit": {"options", "embed"},
    "watch": set(),
    "commit": {"options", "embed", "index"},
    "forget": {"options", "embed", "index", "watch"},
}
THIRD_PARTY = {
    "base": {"numpy", "pyarrow", "torch"},
    "tokens": {"numpy", "pyarrow", "tokenizers"},
    "storage": {"apache_beam", "google", "google_crc32c", "botocore", "requests"},
    "space": {"safetensors"},
    "pooling": {"torch", "numpy", "safetensors"},
    "calibration": {"numpy", "torch", "safetensors"},
    "encoder": {"torch", "transformers", "tokenizers", "numpy", "pyarrow", "safetensors"},
    "corpus": {
        "pyarrow",
        "numpy",
        "zstandard",
        "xxhash",
        "fastavro",
        "tokenizers",
        "regex",
        "nupunkt",
    },
    "index": {"numpy", "faiss"},
    "store": {"pyarrow", "numpy", "xxhash", "zstandard"},
    "search": {"numpy", "pyarrow"},
    "push": {"numpy", "pyarrow", "xxhash", "psycopg", "qdrant_client", "lancedb"},
    "report": {"jinja2", "prometheus_client"},
    "serve": {"prometheus_client", "pyarrow", "starlette", "uvicorn"},
    "evaluation": {"numpy", "pyarrow", "safetensors", "torch", "mteb", "jinja2"},
    "training": {
        "numpy",
        "torch",
        "sentence_transformers",
        "transformers",
        "datasets",
        "safetensors",
        "tokenizers",
    },
    "steps": {"numpy", "pyarrow"},
    "beam": {"apache_beam", "numpy", "pyarrow"},
}
# Store.search is part of the interface of a store and needs what stands beside and above it.
EXCEPTIONS = {("transforms/store/open.py", "sentence_beam.transforms.search")}
PACKAGES = ("pipelines", "sentence_beam", "transforms")
TRANSFORMS = "sentence_beam.transforms"
BEAM_FOR_STORAGE = {
    f"transforms/storage/{name}.py" for name in ("beam_filesystem", "beam_options", "gcs", "s3")
}


@functools.cache
def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf8"))


def _imports(
    path: Path, modules: Collection[str] = (), module_level_only: bool = False
) -> list[str]:
    """What a file imports; `from a import b` is `a.b` where that is among the modules, else `a`."""
    tree = _tree(path)
    nodes = tree.body if module_level_only else list(ast.walk(tree))
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            parent = node.module or ""
            for alias in node.names:
                full = f"{parent}.{alias.name}"
                names.append(full if full in modules or parent == TRANSFORMS else parent)
    return [name for name in names if not modules or name in modules]


def _module(path: Path) -> str:
    """The name by which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    below = parts[1:] if parts[0] == "sentence_beam" else parts
    return ".".join(["sentence_beam", *below]).removesuffix(".__init__")


def _below_transforms(name: str) -> list[str]:
    """The layer that a name is of, and what follows it; empty if it is not of a layer."""
    return name.split(".")[2:] if name.startswith(f"{TRANSFORMS}.") else []


def _layer(path: Path) -> str:
    return path.relative_to(ROOT / "transforms").parts[0].removesuffix(".py")


def _files_of(layer: str) -> list[Path]:
    return [path for path in _files("transforms") if _layer(path) == layer]


def test_every_file_is_of_a_layer() -> None:
    assert {_layer(path) for path in _files("transforms")} == {*LAYERS, "__init__"}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_it_is_allowed(layer: str) -> None:
    wrong = []
    for path in _files_of(layer):
        relative = str(path.relative_to(ROOT))
        for name in _imports(path):
            parts = _below_transforms(name)
            if name.split(".")[0] in ("sentence_beam", "tests") and not parts:
                wrong.append(f"{relative} imports {name}")
            if parts and parts[0] not in ALLOWED[layer] | {layer}:
                if (relative, name) not in EXCEPTIONS:
                    wrong.append(f"{relative} imports {name}")
    assert not wrong


def test_no_permission_is_unused() -> None:
    used: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for layer in LAYERS:
        for path in _files_of(layer):
            for name in _imports(path):
                used[layer].update(_below_transforms(name)[:1])
    assert not {
        layer: unused for layer, allowed in ALLOWED.items() if (unused := allowed - used[layer])
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_steps_imports_only_what_it_is_allowed(room: str) -> None:
    wrong = []
    for path in _files(f"transforms/steps/{room}"):
        for name in _imports(path):
            parts = _below_transforms(name)
            if parts[:1] == ["steps"] and parts[1] not in ROOMS[room] | {room}:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


@pytest.mark.parametrize("layer", [*LAYERS, "__init__"])
def test_third_party_modules_stay_in_their_layers(layer: str) -> None:
    allowed = THIRD_PARTY.get(layer, set()) | {"sentence_beam"} | set(sys.stdlib_module_names)
    found = [
        (path, name) for path in _files_of(layer) for name in _imports(path, module_level_only=True)
    ]
    assert not [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, name in found
        if name.split(".")[0] not in allowed
    ]


def _graph() -> dict[str, set[str]]:
    """The modules of the project, each with those that it imports, late imports among them."""
    paths = {_module(path): path for package in PACKAGES for path in _files(package)}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        relative = str(path.relative_to(ROOT))
        graph[name] = {
            other
            for other in _imports(path, paths)
            if other != name and (relative, other) not in EXCEPTIONS
        }
    return graph


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """A chain of modules of which each imports the next and the last the first; empty where there
    is none.
    """
    done: set[str] = set()

    def search(module: str, chain: list[str]) -> list[str]:
        if module in chain:
            return [*chain[chain.index(module) :], module]
        if module in done:
            return []
        for other in sorted(graph[module]):
            if found := search(other, [*chain, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])


def test_no_module_imports_itself_through_others() -> None:
    circle = _circle(_graph())
    assert not circle, " -> ".join(circle)


def test_benchmarks_import_no_test_and_not_themselves_through_others() -> None:
    imports = {f"benchmarks.{path.stem}": _imports(path) for path in _files("benchmarks")}
    found = {(name, other) for name, others in imports.items() for other in others}
    assert not [pair for pair in found if pair[1].split(".")[0] in ("helpers", "tests", "pytest")]
    circle = _circle({name: imports.keys() & set(others) for name, others in imports.items()})
    assert not circle, " -> ".join(circle)


EARLIER = ("CHANGELOG.md", "tests/test_public_name.py")  # they name what is no module


def _texts() -> Iterator[tuple[str, str]]:
    """The text files of the repository, by their path."""
    folders = (*PACKAGES, ".ci", "benchmarks", "deploy", "docs", "tests")
    below = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    for path in (*ROOT.glob("*"), *below):
        name = str(path.relative_to(ROOT))
        if path.is_file() and "__pycache__" not in path.parts and not name.startswith(EARLIER):
            with contextlib.suppress(UnicodeDecodeError):
                yield name, path.read_text(encoding="utf8")


def test_nothing_is_imported_by_the_name_of_a_folder() -> None:
    """A module under two names would be two modules: its classes and caches would be there twice."""
    wrong = {name: found for name, text in _texts() if (found := OF_A_FOLDER.findall(text))}
    assert not wrong, "modules are below sentence_beam"


@pytest.mark.parametrize("part", ["pipelines", "transforms"])
def test_names_of_a_folder_are_found(part: str) -> None:
    module = f"{part}.{'embed' if part == 'pipelines' else 'store'}"
    for text in (
        f"import {part}",
        f"import {module} as found",
        f"x = 1; from {part} import y",
        f"from {module} import y",
        f"import_module('{module}')",
        f"python -m {module}",
        f'["python", "-m", "{part}"]',
        f"{module}.*",
        module.replace(".", r"\."),
    ):
        assert OF_A_FOLDER.search(text), text
        qualified = text.replace(part, f"sentence_beam.{part}")
        assert not OF_A_FOLDER.search(qualified), qualified
    for text in (f"from sentence_beam import {part}", f"{part}/store.py", f"beam.{module}"):
        assert not OF_A_FOLDER.search(text), text


def test_a_circle_is_found() -> None:
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_beam_is_imported_where_steps_become_a_graph_and_for_its_filesystems() -> None:
    paths = [path for path in _files("transforms") if _layer(path) != "beam"]
    found = {
        str(p.relative_to(ROOT))
        for p in paths
        if any(n.split(".")[0] == "apache_beam" for n in _imports(p))
    }
    assert found == BEAM_FOR_STORAGE


def test_only_the_storage_module_opens_and_writes_files_of_a_store() -> None:
    for path in _files("transforms/store") + _files("transforms/steps") + _files("transforms/beam"):
        for node in ast.walk(_tree(path)):
            called = node.func if isinstance(node, ast.Call) else None
            writes = isinstance(called, ast.Name) and called.id == "open"
            assert not writes, (
                f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} opens a file itself"
            )


def test_arrow_reads_bytes_without_python_in_between() -> None:
    """A thread of Arrow's that waits for Python's lock while the interpreter ends aborts the
    process.
    """
    for path in _files("transforms") + _files("pipelines"):
        source = path.read_text(encoding="utf8")
        assert not re.search(
            r"(read_table|ParquetFile|ParquetDataset)\(\s*(io\.)?BytesIO", source
        ), path


def test_a_name_of_a_class_has_one_meaning() -> None:
    found: dict[str, Path] = {}
    for path in (path for package in PACKAGES for path in _files(package)):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef):
                other = found.setdefault(node.name.lstrip("_"), path)
                assert other == path, (
                    f"{node.name}: {other.relative_to(ROOT)}, {path.relative_to(ROOT)}"
                )


HEAVY = ("torch", "faiss", "transformers")
NO_PIPELINE = ("apache_beam", "pandas", *HEAVY)
LATE = (
    "sklearn",
    "sentence_transformers",
    "starlette",
    "uvicorn",
    "psycopg",
    "qdrant_client",
    "lancedb",
)


NO_PIPELINE_MODULES = " ".join(
    [
        *(f"{TRANSFORMS}.{name}" for name in ("calibration", "space", "store")),
        *(
            f"sentence_beam.pipelines.{name}"
            for name in (
                "cluster dedup diagnose diff distill evaluate export files history info pairs push"
                " report search serve train verify"
            ).split()
        ),
    ]
)
# What is imported one after the other in one process, and what no import up to there brings along.
# That neither the commands with a pipeline nor sentence_beam.transforms.beam import what is heavy is in
# tests/test_public_name.py.
STAGES = [
    (NO_PIPELINE_MODULES, [*NO_PIPELINE, *LATE]),
    ("sentence_beam.transforms.search", ["apache_beam", "pandas", "faiss"]),
    ("sentence_beam.transforms.pooling sentence_beam.transforms.encoder", ["apache_beam"]),
]
# torch names its folder of compiled code as soon as anything asks for it
IMPORTS = """
import csv, gc, importlib, os, sys
def state():
    variables = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    return csv.field_size_limit(), variables, gc.isenabled()
before = state()
for modules, absent in %r:
    for module in modules.split():
        importlib.import_module(module)
    found = [name for name in absent if name in sys.modules]
    assert not found, (modules, found)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from sentence_beam.transforms.encoder import Encoder, one_row, padded, varlen
from sentence_beam.transforms.corpus.formats import csv_rows
import sentence_beam.pipelines.embed
assert state() == before, (state(), before)
names = [*ALL_ATTENTION_FUNCTIONS.keys(), *ALL_MASK_ATTENTION_FUNCTIONS.keys()]
assert not [name for name in names if "sentence_beam" in name], names
"""


def test_importing_stays_light_changes_no_process_and_registers_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS % STAGES], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


CHANGES = re.compile(
    r"(os\.environ\[.*\]|os\.environ\.(setdefault|update|pop|clear)|os\.(putenv|unsetenv)|"
    r"csv\.field_size_limit)"
)


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported: everything but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _run_at_import(child)


def _changes(path: Path) -> list[str]:
    """Return the statements of a module that change the environment or csv when it is imported."""
    changed = []
    for node in _run_at_import(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Call):
            changed.append(ast.unparse(node.func))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed.append(ast.unparse(node))
    return [change for change in changed if CHANGES.fullmatch(change)]


def test_no_module_changes_the_environment_or_csv_when_it_is_imported(tmp_path: Path) -> None:
    for folder in ("transforms", "pipelines"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not _changes(path), path
    code = "import os\nos.environ['A'] = 'b'\ndef f():\n    os.environ['A'] = 'c'\n"
    (tmp_path / "a.py").write_text(code + "os.environ.setdefault('A', 'd')\n")
    assert _changes(tmp_path / "a.py") == ["os.environ['A']", "os.environ.setdefault"]


def test_back_ends_of_storage_know_its_base_and_no_other_layer() -> None:
    base = {
        "sentence_beam.transforms.base.errors",
        "sentence_beam.transforms.base.logs",
        *(
            f"sentence_beam.transforms.storage.{name}"
            for name in ("base", "beam_options", "globs", "listing", "ranged")
        ),
    }
    allowed = {
        "local": base,
        "gcs": base,
        "s3": base | {"sentence_beam.transforms.storage.beam_filesystem"},
        "beam_filesystem": base,
    }
    for name, modules in allowed.items():
        found = {
            m for m in _imports(ROOT / f"transforms/storage/{name}.py") if m.startswith(TRANSFORMS)
        }
        assert found <= modules, f"{name}: {found - modules}"
