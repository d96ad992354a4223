"""No file that a command leaves has the name of a module, so that modules may move."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.module_names import MODULE
from helpers.store_scan import decoded
from helpers.training import scored_rows, write_tsv

pytest.importorskip("faiss")

ROWS = 40


def module_names(folder: Path) -> list[str]:
    """Names of modules in any file below a folder, each with its file."""
    return [
        f"{path.relative_to(folder)}: {found}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for part in decoded(path.read_bytes())
        for found in MODULE.findall(part.decode("latin-1"))
    ]


@pytest.fixture
def texts(inputs: Path) -> Path:
    """A file with rows."""
    ids = [f"row-{number}" for number in range(ROWS)]
    return write_parquet(inputs / "a.parquet", sentences(ROWS), id=ids)


def test_a_store_and_what_is_made_of_it(
    run: Run, embed: Run, texts: Path, store: Path, tmp_path: Path
) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(sentences(3)))
    fit = ("fit", "--store", store, "--method", "whitening:4", "--output", tmp_path / "fitted")
    assert embed(texts, "--id-column", "id", "--index", "Flat").status == 0
    assert run("watch", "--store", store, "--queries", queries).status == 0
    write_parquet(texts, [*sentences(ROWS), ""], id=[f"row-{n}" for n in range(ROWS + 1)])
    assert embed(texts, "--max-rejects", 0).status == 3  # leaves a plan and sidecars
    write_parquet(texts, sentences(ROWS + 1), id=[f"row-{n}" for n in range(ROWS + 1)])
    assert embed(texts).status == 0
    assert run("forget", "--store", store, "--id", "row-3").status == 0
    assert run(*fit).status == 0
    assert run("export", "--store", store, "--output", tmp_path / "exported").status == 0
    for name in ("manifest.json", "watch/*", "forgotten/*.json", "index/*.faiss", "report.html"):
        assert list(store.glob(name)), f"the store has no {name}"
    for folder in (store, tmp_path / "fitted", tmp_path / "exported"):
        assert list(folder.rglob("*.json"))
        assert module_names(folder) == []


def test_models_that_were_trained_and_distilled(run: Run, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the extra train is not installed")
    pytest.importorskip("model2vec.distill", reason="the extra train is not installed")
    trained, distilled = tmp_path / "trained", tmp_path / "distilled"
    data = write_tsv(tmp_path / "scored.tsv", scored_rows(16))
    options = ("--objective", "regression", "--input", data, "--scores", "0,5", "--pooler", "cnn")
    assert run("train", *options, "--model", model, "--epochs", 1, "--output", trained).status == 0
    assert run("distill", "--model", model, "--dim", 4, "--output", distilled).status == 0
    assert (trained / "modeling_cnn.py").is_file()
    assert module_names(trained) == []
    assert module_names(distilled) == []


@pytest.mark.parametrize("package", ["", "sentence_beam."])
@pytest.mark.parametrize("name", [("transforms", "store"), ("pipelines", "embed")])
@pytest.mark.parametrize("file", ["a.json", "b/c.parquet"])
def test_a_name_of_a_module_is_found(
    tmp_path: Path, file: str, name: tuple[str, str], package: str
) -> None:
    text = package + ".".join(name)
    if file.endswith(".parquet"):
        write_parquet(tmp_path / file, [f"{text} {number}" for number in range(100)])
    else:
        (tmp_path / file).write_text(f'{{"made": "{text}"}}')
    assert module_names(tmp_path)


def test_other_names_are_not_taken_for_modules(tmp_path: Path) -> None:
    others = "sentence_transformers.models.Pooling, modeling_cnn.CNN003, transforms.nothing"
    (tmp_path / "modules.json").write_text(others)
    assert module_names(tmp_path) == []
