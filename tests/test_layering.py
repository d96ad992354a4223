"""The layers: who may import whom, read from the source."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = [
    "errors",
    "imports",
    "progress",
    "space",
    "pooling",
    "calibration",
    "encoder",
    "store",
    "index",
    "search",
    "beam",
]
THIRD_PARTY = {
    "errors": set(),
    "imports": set(),
    "progress": set(),
    "space": set(),
    "pooling": {"torch", "numpy", "safetensors"},
    "calibration": {"numpy", "torch", "safetensors"},
    "encoder": {"torch", "transformers", "tokenizers", "numpy", "safetensors"},
    "store": {"pyarrow", "numpy", "apache_beam", "xxhash", "zstandard", "google", "botocore"},
    "index": {"numpy", "faiss"},
    "search": {"numpy", "pyarrow"},
    "beam": {"apache_beam", "grpc", "numpy", "pyarrow"},
}
# Store.search is part of the interface of a store and needs what stands beside and above it.
EXCEPTIONS = {("transforms/store/open.py", "transforms.search")}


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _imports(path: Path, module_level_only: bool = False) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf8"))
    nodes = tree.body if module_level_only else list(ast.walk(tree))
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
    return names


def _layer(path: Path) -> str:
    return path.relative_to(ROOT / "transforms").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", _files("transforms"), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_layer_imports_only_from_layers_before_it(path: Path) -> None:
    layer, relative = _layer(path), str(path.relative_to(ROOT))
    if layer == "__init__":
        return
    for name in _imports(path):
        assert not name.startswith(("pipelines", "tests")), f"{relative} imports {name}"
        parts = name.split(".")
        if parts[0] == "transforms" and len(parts) > 1 and (relative, name) not in EXCEPTIONS:
            assert LAYERS.index(parts[1]) <= LAYERS.index(layer), f"{relative} imports {name}"


@pytest.mark.parametrize("path", _files("transforms"), ids=lambda p: str(p.relative_to(ROOT)))
def test_third_party_modules_stay_in_their_layers(path: Path) -> None:
    layer = _layer(path)
    allowed = THIRD_PARTY.get(layer, set()) | {"transforms"} | set(sys.stdlib_module_names)
    for name in _imports(path, module_level_only=True):
        assert name.split(".")[0] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_only_the_storage_module_opens_and_writes_files_of_a_store() -> None:
    for path in _files("transforms/store") + _files("transforms/beam"):
        if path.name == "storage.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            called = node.func if isinstance(node, ast.Call) else None
            writes = isinstance(called, ast.Name) and called.id == "open" and path.name != "segments.py"
            assert not writes, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} opens a file itself"


def test_arrow_reads_bytes_without_python_in_between() -> None:
    """A thread of Arrow's that waits for Python's lock while the interpreter ends aborts the process."""
    for path in _files("transforms") + _files("pipelines"):
        source = path.read_text(encoding="utf8")
        assert not re.search(r"(read_table|ParquetFile|ParquetDataset)\(\s*(io\.)?BytesIO", source), path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("transforms.pooling", ["apache_beam"]),
        ("transforms.encoder", ["apache_beam"]),
        ("transforms.calibration", ["torch", "transformers", "apache_beam"]),
        ("transforms.space", ["torch", "transformers", "apache_beam"]),
        ("transforms.beam", ["torch", "faiss", "transformers"]),
        ("transforms.search", ["apache_beam", "pandas", "faiss"]),
        ("transforms.store", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.embed", ["torch", "faiss", "transformers"]),
        ("pipelines.fit", ["torch", "faiss", "transformers"]),
        ("pipelines.index", ["torch", "faiss", "transformers"]),
        ("pipelines.diff", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.evaluate", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.export", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.files", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.history", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.pairs", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.report", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.search", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.verify", ["apache_beam", "pandas", "torch", "faiss", "transformers"]),
        ("pipelines.recalibrate", ["torch", "faiss", "transformers"]),
        ("transforms.beam.worker", ["torch", "faiss", "transformers"]),
    ],
)
def test_importing_stays_light(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
