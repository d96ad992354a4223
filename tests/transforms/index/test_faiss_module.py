import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import index_data  # noqa: F401  (skips where faiss is missing)

from sentence_beam.transforms.base.errors import MissingExtraError, OptionError
from sentence_beam.transforms.index import faiss_module


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    faiss_module.load_faiss.cache_clear()
    yield
    faiss_module.load_faiss.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these distributions be the installed ones, each in a folder of its own on the path of
    imports.
    """

    def call(*names: str) -> None:
        path = []
        for number, name in enumerate(names):
            (tmp_path / str(number) / f"{name.replace('-', '_')}-1.0.dist-info").mkdir(parents=True)
            path.append(str(tmp_path / str(number)))
        monkeypatch.setattr(sys, "path", path)

    return call


def _broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ImportError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", fail)


def test_missing_faiss_names_both_extras(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    _broken(monkeypatch)
    with pytest.raises(
        MissingExtraError, match=r"pip install -c .*\[cpu\].*the extra gpu in place of cpu"
    ):
        faiss_module.load_faiss()


def test_two_distributions_are_refused_with_the_mend(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("faiss-gpu", "faiss-cpu", "faiss-cpu")
    with pytest.raises(
        OptionError, match="pip uninstall -y faiss-cpu faiss-gpu, then .*pip install"
    ):
        faiss_module.load_faiss()


def test_a_distribution_that_does_not_load_says_why(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("faiss-gpu")
    _broken(monkeypatch)
    with pytest.raises(
        OptionError, match=r"faiss-gpu does not load .*libcudart\.so\.12.*: pip install"
    ):
        faiss_module.load_faiss()


def test_one_listed_twice_is_fine(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("faiss")
    install("faiss-cpu", "faiss-cpu")
    assert faiss_module.load_faiss().__name__ == "faiss"


def test_importing_the_layer_imports_neither_faiss_nor_beam_nor_torch() -> None:
    code = "import sys, sentence_beam.transforms.index; print([m for m in ('faiss', 'apache_beam', 'torch') if m in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "[]"


def test_threads_hold_inside_the_block_only() -> None:
    faiss = faiss_module.load_faiss()
    before = faiss.omp_get_max_threads()
    with faiss_module.use_threads(before + 3) as inside:
        assert inside.omp_get_max_threads() == before + 3
    assert faiss.omp_get_max_threads() == before
