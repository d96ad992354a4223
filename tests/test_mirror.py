"""Where a module is tested: beside its name, or where a test's first docstring says so; and no
test reaches for a private name of the project.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ("transforms", "pipelines")
PACKAGES = (*CODE, "benchmarks", "sentence_beam")
MOST_LINES = 60  # of code: a shorter module is tested with its users
COVERS = re.compile(r"^Covers (\S+)\.$", re.MULTILINE)
NOT_OURS = {"_", "_fields"}  # a name for what is not read; Beam's and a named tuple's own
DEFINED = re.compile(
    r"^\s*(?:async )?(?:def|class) (_\w+)|^(_\w+)\b|\bself\.(_\w+)\b", re.MULTILINE
)
# what may be a private name of another module, in a file that is worth parsing
REACHED = re.compile(r"(?<!self)(?<!cls)\._[a-zA-Z]|[\"']_[a-zA-Z]|import .*\b_[a-zA-Z]")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _modules() -> Iterator[Path]:
    for folder in CODE:
        paths = (ROOT / folder).rglob("*.py")
        yield from sorted(path for path in paths if path.name != "__init__.py")


@functools.cache
def _tests() -> list[Path]:
    paths = (ROOT / "tests").rglob("*.py")
    return sorted(paths)


def _code_lines(path: Path) -> int:
    """Lines that have something other than comments and docstrings."""
    text = path.read_text(encoding="utf8")
    if text.count("\n") <= MOST_LINES:
        return 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _covered() -> dict[str, list[str]]:
    """The modules that docstrings of tests name, each with the tests that do."""
    covered: dict[str, list[str]] = {}
    for path in _tests():
        docstring = path.read_text(encoding="utf8").split('"""', 2)[1:2]
        for module in COVERS.findall("".join(docstring)):
            covered.setdefault(module, []).append(str(path.relative_to(ROOT)))
    return covered


def test_every_module_has_a_test_of_its_name_or_one_that_says_it_covers_it() -> None:
    covered = _covered()
    missing = []
    for path in _modules():
        module = path.relative_to(ROOT)
        own = ROOT / "tests" / module.with_name(f"test_{module.name}")
        if not own.exists() and str(module) not in covered and _code_lines(path) > MOST_LINES:
            missing.append(f"{module}: write {own.relative_to(ROOT)}")
    assert not missing, "or add `Covers <module>.` to the docstring of its test: " + "; ".join(
        missing
    )


def test_a_test_covers_modules_that_exist() -> None:
    for module, tests in _covered().items():
        assert (ROOT / module).is_file(), f"{', '.join(tests)}: {module} does not exist"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def _private_names() -> frozenset[str]:
    """The private functions, classes, constants and attributes of the project."""
    names: set[str] = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for found in DEFINED.findall(path.read_text(encoding="utf8")):
            names.update(found)
    return frozenset(filter(_is_private, names))


def _reached(tree: ast.Module, private: Collection[str]) -> Iterator[tuple[int, str]]:
    """The private names that a test imports, reads of an object or patches, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from ((node.lineno, name) for name in names if _is_private(name))
        if isinstance(node, ast.Attribute) and node.attr in private:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if called in ("setattr", "getattr", "delattr", "object"):
                words = [part.value for part in node.args if isinstance(part, ast.Constant)]
                for word in (word for word in words if isinstance(word, str)):
                    yield from ((node.lineno, name) for name in word.split(".") if name in private)


def test_no_test_reaches_for_a_private_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in _tests()
        if REACHED.search(text := path.read_text(encoding="utf8"))
        for line, name in _reached(ast.parse(text), _private_names())
        if name not in NOT_OURS
    ]
    assert not found, "make it public, or test what is public: " + "; ".join(found)


def test_names_that_are_reached_for_are_found() -> None:
    source = """
from sentence_beam.transforms.a import _b
a._c(self._d)
patch.setattr("sentence_beam.transforms.a._d", 1)
patch.setattr(a, "_c", 1)
"""
    found = list(_reached(ast.parse(source), {"_c", "_d"}))
    assert sorted(found) == [(2, "_b"), (3, "_c"), (4, "_d"), (5, "_c")]
