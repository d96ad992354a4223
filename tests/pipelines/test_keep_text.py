"""The text of the rows in the store: kept by default, left out where asked, changed without the
model.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from helpers.calibrations import fit_on
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    manifest_of,
    sentences,
    vectors_of,
    write_lines,
    write_parquet,
)
from helpers.snapshots import units_of

import sentence_beam as sb
from sentence_beam.transforms.store import open_store

TEXTS = sentences(12)


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    return request.param


def texts_in(store: Path) -> dict[str, str]:
    """The column `text` of the store, which is of strings, by id."""
    table = open_store(str(store)).dataset().to_table()
    assert table.schema.field("text").type == pa.string()
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


def columns_of(store: Path) -> list[str]:
    names = open_store(str(store)).dataset().schema.names
    return [name for name in names if name not in ("id", "embedding", "norm")]


def forbid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
        lambda job: pytest.fail("the model was loaded"),
    )


def test_a_new_store_keeps_the_text_whatever_its_column_is_called(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    body, keys = pa.array(TEXTS).dictionary_encode(), list(map(str, range(12)))
    write_parquet(inputs / "a.parquet", ["x"] * 12, body=body, key=keys)
    embed(inputs / "*", "--text-column", "body", "--id-column", "key").ok()
    assert texts_in(store) == {str(number): text for number, text in enumerate(TEXTS)}
    assert TEXTS[3] in run("search", "--store", store, "--query", TEXTS[3], "-k", 1).ok().out
    assert open_store(str(store)).search(TEXTS[5], k=1)[0]["text"] == TEXTS[5]
    assert open_store(str(store)).rows("7")["text"].to_pylist() == [TEXTS[7]]


def test_without_it_and_with_it_again_needs_no_model(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(inputs / "a.txt", [*TEXTS, ""])
    embed(inputs / "*", "--no-keep-text", "--max-rejects", 1).ok()
    first = vectors_of(store)
    assert "text" not in columns_of(store)
    with monkeypatch.context() as patch:
        forbid(patch)
        embed(inputs / "*").ok()
        assert manifest_of(store)["work"]["carried"] == 12, "the store remembers that it has none"
        embed(inputs / "*", "--keep-text").ok()
        check_ledger(store, 12, 1, reused=12)
        assert sorted(texts_in(store).values()) == sorted(TEXTS)
        before = units_of(store)
        embed(inputs / "*").ok()
        assert (manifest_of(store)["work"]["carried"], units_of(store)) == (12, before)
        embed(inputs / "*", "--no-keep-text").ok()
    assert "text" not in columns_of(store)
    assert vectors_of(store) == first


def test_a_kept_column_that_is_the_text_is_not_doubled(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", pa.array(TEXTS, pa.large_string()), n=list(range(12)))
    embed(inputs / "*", "--keep-columns", "n,text").ok()
    assert columns_of(store) == ["row_hash", "tokens", "truncated", "n", "text"]
    assert open_store(str(store)).dataset().schema.field("text").type == pa.string()


def test_the_text_is_the_kept_column_of_another_name(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", [f"about {number}" for number in range(12)], body=TEXTS)
    for named in (("--text-column", "body"), ("--text-template", "{text}: {body}")):
        refused = embed(inputs / "*", *named, "--keep-columns", "text")
        refused.failed(2, "--keep-columns text", "--no-keep-text")
    embed(inputs / "*", "--text-column", "body", "--keep-columns", "body,text").ok()
    assert columns_of(store) == ["row_hash", "tokens", "truncated", "body", "text"]
    shown = run("search", "--store", store, "--query", TEXTS[0], "-k", 1).ok().out
    assert TEXTS[0] in shown.split("text", 1)[1]
    assert "about" not in shown


def test_other_vectors_of_the_same_rows_keep_a_text_that_a_template_makes(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(inputs / "a.parquet", TEXTS, n=list(range(12)))
    template = ("--text-template", "{n}: {text}", "--keep-columns", "n")
    embed(inputs / "*", "--dtype", "float32", *template).ok()
    made = sorted(f"{number}: {text}" for number, text in enumerate(TEXTS))
    assert sorted(texts_in(store).values()) == made
    folder = fit_on(store, "standardize", tmp_path / "fitted")
    forbid(monkeypatch)
    for command in (
        lambda: run("recalibrate", "--store", store, "--calibration", folder),
        lambda: embed(inputs / "*", "--precision", "int8"),
        lambda: embed(inputs / "*", "--dim", 8),
    ):
        command().ok()
        assert sorted(texts_in(store).values()) == made


def test_from_python(model: Path, store: Path) -> None:
    how = {"store": str(store), "model": str(model)}
    assert sb.embed(TEXTS, **how).to_pandas()["text"].tolist() == TEXTS
    assert "text" not in sb.embed(TEXTS, keep_text=False, **how).to_pandas()
