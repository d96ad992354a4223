"""The demo's corpus: what is in it, what is not, and that it is the same every time."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "demo" / "docstrings.py"

SOURCE = '''
"""About the module.

Second paragraph.

Third paragraph.
"""

raise SystemExit("parsed, never run")

try:
    import fast
except ImportError:
    def fallback():
        """Only without fast."""

if True:
    def chosen():
        """The first of two."""
else:
    def chosen():
        """The second of two."""

class Box:
    """A box.

        Indented further.
    """

    def __len__(self):
        """How many."""

    def _peek(self):
        """Private."""

    async def open(self):
        """Opens."""
        def inner():
            """Local."""

    class Lid:
        def lift(self):
            """Up."""

class _Hidden:
    """Private."""
    def shown(self):
        """Of a private class."""

def bare():
    pass

def blank():
    """   """
'''


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_docstrings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A little standard library; only `shop` and `shop.cart` count."""
    root = tmp_path / "lib"
    for name in (
        "shop/__init__",
        "shop/cart",
        "shop/_core",
        "test/test_shop",
        "site-packages/other",
        "idlelib/idle",
    ):
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Text of {name}."""\n')
    return root


def test_every_public_docstring_of_a_module(script: ModuleType) -> None:
    assert dict(script.module_docstrings("m", SOURCE.encode())) == {
        "m": "About the module.\n\nSecond paragraph.",
        "m.fallback": "Only without fast.",
        "m.chosen": "The second of two.",
        "m.Box": "A box.\n\nIndented further.",
        "m.Box.__len__": "How many.",
        "m.Box.open": "Opens.",
        "m.Box.Lid.lift": "Up.",
    }


def test_of_a_name_defined_twice_the_first_counts(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    rows = script.collect(tmp_path)
    assert [row["text"] for row in rows if row["id"] == "m.chosen"] == ["The first of two."]


def test_tests_private_modules_and_other_packages_are_left_out(
    script: ModuleType, library: Path
) -> None:
    assert script.collect(library) == [
        {"id": "shop", "text": "Text of shop/__init__.", "module": "shop"},
        {"id": "shop.cart", "text": "Text of shop/cart.", "module": "shop.cart"},
    ]


def test_files_hold_all_rows_in_order_and_are_the_same_every_time(
    script: ModuleType, tmp_path: Path
) -> None:
    rows = [{"id": f"m.f{i:04d}", "text": f"text {i}", "module": "m"} for i in range(4005)]
    first, second = (script.write(rows, tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert [row for path in first for row in pq.read_table(path).to_pylist()] == rows
    assert all(pq.read_metadata(path).num_row_groups > 1 for path in first)


def test_the_standard_library_gives_thousands_of_rows(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(tmp_path / "corpus")]) == 0
    files = sorted((tmp_path / "corpus").iterdir())
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    ids = [row["id"] for row in rows]
    assert len(rows) > 3000
    assert len(set(ids)) == len(ids)
    assert "collections.OrderedDict.move_to_end" in ids
    assert all(row["text"].strip() and row["id"].startswith(row["module"]) for row in rows)
    assert (
        capsys.readouterr().out
        == f"{len(rows):,} docstrings in {len(files)} files in {tmp_path / 'corpus'}\n"
    )


def test_mistakes_end_with_one_line(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.main([]) == 2
    assert capsys.readouterr().err == "usage: docstrings.py FOLDER\n"
    monkeypatch.setattr(script, "STDLIB", tmp_path)
    monkeypatch.setattr(script, "collect", lambda: [])
    assert script.main([str(tmp_path / "corpus")]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()
