"""A small corpus that every machine has: the docstrings of Python's standard library.

Writes `docstrings-<n>.parquet` into a folder, with the columns `id` (qualified name), `text` (the
docstring's first two paragraphs) and `module`. Sources are parsed, not imported. Public names only;
of a name that a module defines twice, the first docstring; ordered by id.
"""

import ast
import math
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

STDLIB = Path(sysconfig.get_path("stdlib"))
SKIPPED = {"test", "tests", "idlelib"}
PARAGRAPHS = 2  # the rest of a docstring is mostly details of its parameters
FILES = 4
ROWS_PER_GROUP = 500
SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "text", "module")])

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_files(root: Path) -> Iterator[tuple[str, Path]]:
    """(dotted module name, file) of every public module below `root`."""
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        # A folder whose name is no identifier, as `site-packages`, holds no modules of the library.
        if parts and all(
            part.isidentifier() and is_public(part) and part not in SKIPPED for part in parts
        ):
            yield ".".join(parts), path


def is_public(name: str) -> bool:
    """Whether a name is meant for use from outside; `__init__` and its like are."""
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def module_docstrings(module: str, source: bytes) -> Iterator[tuple[str, str]]:
    """(qualified name, text) of a module, its classes, methods and functions."""
    tree = ast.parse(source)
    for name, node in [(module, tree), *_definitions(tree, module)]:
        text = (ast.get_docstring(node) or "").strip()
        if text:
            yield name, "\n\n".join(text.split("\n\n")[:PARAGRAPHS])


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            yield from _definitions(child, prefix)
        elif isinstance(child, Definition) and is_public(child.name):
            name = f"{prefix}.{child.name}"
            yield name, child
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, name)


def collect(root: Path = STDLIB) -> list[dict[str, str]]:
    """The corpus: rows with `id`, `text` and `module`, sorted by id, every id once."""
    rows: dict[str, dict[str, str]] = {}
    for module, path in sorted(source_files(root)):
        for name, text in module_docstrings(module, path.read_bytes()):
            rows.setdefault(name, {"id": name, "text": text, "module": module})
    return [rows[name] for name in sorted(rows)]


def docstrings() -> Iterator[tuple[str, str]]:
    """(id, text) of the corpus."""
    for row in collect():
        yield row["id"], row["text"]


def write(rows: list[dict[str, str]], folder: Path) -> list[Path]:
    """Files of about equal length, the rows in order; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"docstrings-{number}.parquet" for number in range(FILES)]
    step = math.ceil(len(rows) / FILES)
    for number, path in enumerate(paths):
        part = rows[number * step : (number + 1) * step]
        pq.write_table(pa.Table.from_pylist(part, SCHEMA), path, row_group_size=ROWS_PER_GROUP)
    return paths


def main(argv: list[str]) -> int:
    """Write the corpus into the folder named; returns the exit status."""
    if len(argv) != 1:
        print("usage: docstrings.py FOLDER", file=sys.stderr)
        return 2
    rows = collect()
    if not rows:
        print(
            f"docstrings.py: {STDLIB} holds no Python sources; use an interpreter that has them",
            file=sys.stderr,
        )
        return 1
    paths = write(rows, Path(argv[0]))
    print(f"{len(rows):,} docstrings in {len(paths)} files in {argv[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
