"""Bytes of a stored file are parsed where damage becomes one line: whatever a parser raises, no
command ends with it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "transforms"
LAYERS = ("calibration", "index", "store", "search", "report", "steps")
PARSERS = {
    "json.loads",
    "pq.ParquetFile",
    "pq.read_metadata",
    "read_parquet_bytes",
    "np.load",
    "load",
}
# `parsed` of a run's folder takes the parser as an argument
GUARDS = {"refuse_damage", "_refuse_damage", "refuse_damaged_work", "parsed"}
# Functions that parse without a guard of their own, and why no error gets past them.
OTHERS = {
    ("index/array_bytes.py", "unpack"): "called by parsed",
    ("steps/index/index_folder.py", "parse_array"): "called by parsed",
    ("store/runs/recorded_plan.py", "from_schema"): "called within refuse_damage",
    ("store/tables/table_parts.py", "_parse_rows"): "called within refuse_damage",
    ("steps/plan/planned.py", "list_distinct_values"): "bytes that workers of the run hand on",
    ("store/watched.py", "from_bytes"): "called within refuse_damage",
    ("store/watched.py", "parse_answers"): "called within refuse_damage",
    ("store/shards/shard_bytes.py", "_find_leaves"): "the bytes were made here",
    ("store/index_files/locator_file.py", "_read_part"): "the footer is right, by its sha256",
    (
        "store/shards/shard_reading.py",
        "open_shard",
    ): "errors of remote storage are another matter, those of bytes are named",
    (
        "store/shards/shard_reading.py",
        "read_checked",
    ): "the bytes are those that were written, by their sha256",
    (
        "store/shards/vector_files.py",
        "_read_parquet",
    ): "a file that an option names, whose errors are caught by its reader",
}


def name_of(call: ast.Call) -> str:
    """What a call calls, as it is written."""
    return ast.unparse(call.func)


def unguarded(node: ast.AST, function: str = "") -> Iterator[tuple[str, int]]:
    """The function and the line of each call of a parser that is in no guard."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
    if isinstance(node, ast.With):
        guards = (item.context_expr for item in node.items)
        if any(
            isinstance(guard, ast.Call) and name_of(guard).split(".")[-1] in GUARDS
            for guard in guards
        ):
            return
    if isinstance(node, ast.Call):
        if name_of(node) in PARSERS:
            yield function, node.lineno
        if name_of(node).split(".")[-1] in GUARDS:
            return
    for child in ast.iter_child_nodes(node):
        yield from unguarded(child, function)


def found() -> dict[tuple[str, str], int]:
    """The functions that parse without a guard, with a line of each."""
    files = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    return {
        (str(path.relative_to(ROOT)), function): line
        for path in files
        for function, line in unguarded(ast.parse(path.read_text()))
    }


def test_stored_bytes_are_parsed_where_damage_becomes_one_line() -> None:
    others = {place: line for place, line in found().items() if place not in OTHERS}
    assert not others, "parse these bytes within refuse_damage"


def test_no_exception_is_out_of_use() -> None:
    assert OTHERS.keys() <= found().keys()


def test_a_parser_without_a_guard_is_found() -> None:
    code = "def f(data):\n    with refuse_damage('x'):\n        json.loads(data)\n    return pq.ParquetFile(data)"
    assert list(unguarded(ast.parse(code))) == [("f", 4)]
