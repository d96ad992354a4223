"""The package that people import: its names, and what importing it costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sentence_beam

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "apache_beam", "transformers", "faiss", "numpy", "pyarrow"}


def python(
    *arguments: str, cwd: Path = ROOT, path: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=cwd, env={"PYTHONPATH": str(path)}, capture_output=True, text=True
    )


# The names


def declared() -> dict[str, str]:
    """The names that a type checker sees, each with the module it is from."""
    tree = ast.parse((ROOT / "sentence_beam" / "__init__.py").read_text(encoding="utf8"))
    for_checkers = next(node for node in tree.body if isinstance(node, ast.If)).body
    imports = [node for node in for_checkers if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if node.module and node.module.startswith("sentence_beam.")]
    return {alias.name: str(node.module) for node in ours for alias in node.names}


def test_every_name_is_what_it_is_declared_to_be() -> None:
    found = declared()
    assert sorted({*found, "__version__"}) == sorted(sentence_beam.__all__)
    for name, module in found.items():
        assert getattr(sentence_beam, name) is getattr(importlib.import_module(module), name)
    assert set(sentence_beam.__all__) <= set(dir(sentence_beam))


def test_other_names_are_not_there() -> None:
    assert not hasattr(sentence_beam, "nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from sentence_beam import nothing")


COSTS = [
    (
        "import sentence_beam; dir(sentence_beam)",
        HEAVY | {"sentence_beam.transforms", "sentence_beam.pipelines"},
    ),
    ("from sentence_beam import OptionError", HEAVY),
    ("from sentence_beam import open_store", HEAVY - {"numpy", "pyarrow"}),
    ("from sentence_beam import EmbedOptions", HEAVY - {"numpy", "pyarrow"}),
]
LIGHT = {"torch", "transformers", "faiss"}
COSTS_OF_PARTS = [
    [
        ("from sentence_beam import Plan, Embed, BuildIndex, Commit", LIGHT),
        (
            "import importlib, pkgutil, sentence_beam.pipelines, sentence_beam.transforms.beam; "
            "[importlib.import_module(f'sentence_beam.pipelines.{m.name}') for m in pkgutil.iter_modules(sentence_beam.pipelines.__path__)]",
            LIGHT,
        ),
        (
            "from sentence_beam.transforms.space import parse_pooler, resolve_model, resolve_space; "
            "resolve_space(resolve_model('minilm'), pooler=parse_pooler('mean+max:count=no-special'))",
            LIGHT,
        ),
    ],
    [("from sentence_beam import Encoder", {"apache_beam", "faiss"})],
]
# each statement after those before it, in one process; the parts each in a child of it
ALL_COSTS = """
import os, sys
def check(code, absent):
    exec(code, {{}})
    print(code, sorted(absent & set(sys.modules)), flush=True)
for code, absent in {costs}:
    check(code, absent)
for part in {parts}:
    if os.fork() == 0:
        for code, absent in part:
            check(code, absent)
        os._exit(0)
    os.wait()
"""


def test_a_name_costs_what_it_needs() -> None:
    done = python("-c", ALL_COSTS.format(costs=COSTS, parts=COSTS_OF_PARTS))
    wanted = [f"{code} []" for part in (COSTS, *COSTS_OF_PARTS) for code, _ in part]
    assert done.stdout.splitlines() == wanted, done.stderr


PROGRAM = """\
from pathlib import Path
import numpy as np
import pyarrow as pa
import sentence_beam as sb

STORE = Path("store")
store = sb.embed("corpus/*.csv", store=STORE, id_column="id", keep_columns=["lang"], max_tokens=64)
store = sb.embed(Path("a.csv"), store=STORE)
store = sb.embed(Path().glob("*.csv"), store=STORE, append=True)
store = sb.embed(pa.table({"text": ["a"]}), store="store")
store = sb.embed({"text": ["a"]}, store="store")
store = sb.embed([{"text": "a", "n": 1}], store="store")
store = sb.embed(["a", "b"], store="store")
store = sb.embed(sb.EmbedOptions(input=[Path("a.csv")], store=STORE, calibration=Path("whitened")))
maybe: sb.Store | None = sb.embed("*.csv", store=STORE, beam_flags=["--runner=FlinkRunner"])
hits: list[sb.Hit] = store.search("a query", k=3, where="lang = 'en'")
many: list[list[sb.Hit]] = store.search(["one", "two"], exact=True)
alike: list[sb.Hit] = store.search(ids="a")
near: list[list[sb.Hit]] = store.search(vectors=np.zeros((2, 3)))
rank: int = hits[0].rank
score: float = hits[0].score
name: str = hits[0].id
lang = hits[0]["lang"].upper()
sb.neighbours(STORE, of=STORE, output=Path("out"), k=3, min_score=0.5)
vectors: np.ndarray = sb.Encoder.load(Path("model"), truncate_dim=8).encode(["a"])
rows = sb.EmbedRows(Path("model"))
found: sb.Store = sb.open_store(STORE)
"""
MISTAKES = {
    "sb.nothing": 'Module has no attribute "nothing"',
    "sb.embed('*.csv')": "No overload variant",
    "sb.embed('*.csv', store='s', max_token=3)": "No overload variant",
    "sb.embed('*.csv', store='s', max_tokens='3')": "No overload variant",
    "sb.embed(17, store='s')": "No overload variant",
    "sb.embed('*.csv', store='s', beam_flags=[]).search('a')": "has no attribute",
    "sb.open_store('s').search('a', sort=True)": "No overload variant",
    "sb.EmbedOptions(input='*.csv', store='s', max_token=3)": "Unexpected keyword argument",
}


def checked(folder: Path, program: str) -> list[str]:
    """What mypy says of a program, a line each; other packages are taken to be without types, which
    is fast.
    """
    (folder / "mypy.ini").write_text(
        "[mypy]\nfollow_imports = skip\nignore_missing_imports = true\n"
        "[mypy-sentence_beam.*]\nfollow_imports = silent\n"
    )
    (folder / "program.py").write_text(program)
    done = python("-m", "mypy", "--no-error-summary", "program.py", cwd=folder)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_type_checker_takes_a_users_program_and_finds_its_mistakes(tmp_path: Path) -> None:
    lines = checked(tmp_path, PROGRAM + "\n".join(MISTAKES))
    first = PROGRAM.count("\n") + 1
    errors = [line for line in lines if ": error: " in line]
    for number, (mistake, message) in enumerate(MISTAKES.items(), first):
        assert any(
            line.startswith(f"program.py:{number}: ") and message in line for line in errors
        ), mistake
    assert [line for line in errors if int(line.split(":")[1]) < first] == []


# The folders of a checkout


BY_FOLDER = {
    "import transforms": "transforms",
    "import pipelines.embed": "pipelines",
    "from transforms.store import open_store": "transforms",
    "import sentence_beam.transforms.store, sentence_beam.pipelines, transforms.store": "transforms",
}


@pytest.mark.parametrize("code", BY_FOLDER)
def test_a_folder_of_the_checkout_is_no_package_of_its_own(code: str) -> None:
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr.endswith(f"ImportError: this package is sentence_beam.{BY_FOLDER[code]}\n")


@pytest.mark.parametrize("module", ["pipelines.embed", "pipelines", "transforms.store"])
def test_a_folder_of_the_checkout_is_not_run_by_its_own_name(module: str) -> None:
    done = python("-m", module, "--help")
    assert done.returncode == 1
    assert (
        f"this package is sentence_beam.{module.partition('.')[0]}" in done.stderr.splitlines()[-1]
    )


# Logging

WITHOUT_GCP = "import sys, logging; sys.modules['apitools'] = None; from sentence_beam import EmbedRows, embed; "


def test_the_root_logger_is_left_to_the_program() -> None:
    own = "logging.basicConfig(format='%(message)s', level='INFO'); logging.info('mine')"
    done = python("-c", f"{WITHOUT_GCP} print(logging.root.handlers); {own}")
    assert (done.stdout, done.stderr) == ("[]\n", "mine\n")


@pytest.mark.slow
def test_a_logger_that_the_program_has_set_up_gets_no_warning_of_beams_optional_parts() -> None:
    done = python(
        "-c", f"import logging; logging.basicConfig(); {WITHOUT_GCP} logging.warning('mine')"
    )
    assert done.stderr == "WARNING:root:mine\n"
