"""The pictures of the pages, and the script that draws them."""

import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import pytest
from helpers.pages import DOCS, ROOT

LARGEST = 200_000  # bytes
PICTURES = ROOT / "docs" / "pictures"


def load(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """The module docs/pictures.py, if Chromium is installed."""
    module = load("pictures")
    if module.browser() is None:
        pytest.skip("no chromium here")
    return module


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_each_picture_is_small_and_shown_on_a_page() -> None:
    names = {path.name for path in PICTURES.iterdir()}
    diagrams = {f"{name}.svg" for name in load("diagrams").DIAGRAMS}
    assert names == {"serve.png", "report.png", "evaluate.png", *diagrams}
    pages = "".join(path.read_text(encoding="utf8") for path in DOCS)
    for name in names:
        assert f"](pictures/{name})" in pages, name
        assert (PICTURES / name).stat().st_size < LARGEST, name


def test_a_page_is_drawn_in_the_size_of_its_picture(pictures: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<h1>A page</h1>")
    pictures.draw(f"file://{tmp_path}/page.html", tmp_path / "evaluate.png")
    assert size(tmp_path / "evaluate.png") == pictures.SIZES["evaluate"]


def test_the_diagrams_are_those_that_the_script_draws() -> None:
    for name, draw in load("diagrams").DIAGRAMS.items():
        drawn = (PICTURES / f"{name}.svg").read_text(encoding="utf8")
        assert drawn == draw().svg(), "run: python docs/diagrams.py"


@pytest.mark.slow
def test_the_script_draws_every_picture(pictures: ModuleType, tmp_path: Path) -> None:
    pictures.main(["--output", str(tmp_path), "--rows", "400"])
    assert {path.stem: size(path) for path in tmp_path.iterdir()} == pictures.SIZES
