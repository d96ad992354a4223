"""`fit` on a store: a whole calibration, what a person sees, and what is refused.

Covers pipelines/common/fit_picture.py.
"""

import json
import shutil
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.variants import variants

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.calibration import load_calibration
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.shards.shard_reading import read_pooled

TEXTS = sentences(300)
METHODS = [
    "standardize",
    "remove-top:2",
    "standardize+remove-top:3",
    "whitening",
    "whitening:8",
    "flow:depth=1",
]


@pytest.fixture(scope="module")
def of_all(tmp_path_factory, model):
    """A store of all texts, which tests copy."""
    folder = tmp_path_factory.mktemp("made")
    file = write_parquet(folder / "a.parquet", TEXTS, row_group_size=6)
    options = ["--store", str(folder / "store"), "--model", str(model), "--dtype", "float32"]
    assert main(["embed", "--input", str(file), *options]) == 0
    return folder / "store"


@pytest.fixture
def made(embed, inputs, of_all, store):
    """A store of texts (by default 300), float32."""

    def make(texts: list[str] = TEXTS, *options: object) -> None:
        if texts is TEXTS and not options:
            shutil.copytree(of_all, store)
            return
        embed(write_parquet(inputs / "a.parquet", texts), "--dtype", "float32", *options).ok()

    return make


@pytest.fixture
def fit(run, store, tmp_path):
    """Fit a method on the store; gives the outcome and the folder."""

    def call(method: str, *options: object, name: str = "c") -> object:
        return run(
            "fit", "--store", store, "--method", method, "--output", tmp_path / name, *options
        )

    return call


def pooled(store) -> np.ndarray:
    """All pooled vectors of a store."""
    opened = open_store(str(store))
    blocks = [read_pooled(path, opened.space.normalize) for path in opened.manifest.shard_paths]
    return np.concatenate([rows for block in blocks for rows, _ in block])


@variants("method", METHODS, kept=(2, 5))
def test_a_fit_is_whole_and_says_what_it_found(made, fit, store, model, tmp_path, method):
    made()
    out = fit(method).ok().out
    calibration, rows = load_calibration(str(tmp_path / "c")), pooled(store)
    after, info = calibration.apply(rows), calibration.info
    assert np.isfinite(after).all()
    if method.startswith("whitening"):
        assert np.abs(np.cov(after.T) - np.eye(after.shape[1])).max() < 1e-3
    elif method != "flow:depth=1":
        assert np.abs(after.mean(axis=0)).max() < 1e-4
        encoded = Encoder.load(str(model), dtype="float32", normalize=False).encode(TEXTS)
        mean = encoded.astype(np.float64).mean(axis=0)
        largest = np.abs(encoded).max()
        assert np.abs(calibration.tensors["mean"] - mean).max() <= 1e-5 * largest
    manifest, fitted_on = manifest_of(store), info["fitted_on"]
    assert (fitted_on["store"], fitted_on["run"]) == (str(store), manifest["run"])
    assert (fitted_on["n"], fitted_on["space"]["id"]) == (300, manifest["space"]["id"])
    assert calibration.pooled_id == manifest["space"]["pooled_id"]
    lines = {line[:12].strip(): line[12:] for line in out.splitlines()}
    assert lines["n"] == "300 rows"
    assert lines["d"] == f"{rows.shape[1]} in, {after.shape[1]} out"
    others = "method k_eff condition variance cosine calibration picture use"
    assert set(lines) >= set(others.split())
    assert ("NLL" in lines) == method.startswith("flow")
    result = json.loads((tmp_path / "c" / "fit.json").read_text())
    assert len(result["shape_before"]["cosines"]) == 100
    names = {path.name for path in (tmp_path / "c").iterdir() if not path.name.startswith(".")}
    assert names == {"calibration.json", "calibration.safetensors", "fit.json", "fit.svg"}
    drawn = ElementTree.parse(tmp_path / "c" / "fit.svg")
    assert len(drawn.findall("{*}svg")) == (3 if method.startswith("flow") else 2)


def test_a_failed_fit_leaves_the_last_calibration(made, fit, tmp_path):
    """Of a sample too, whose file is removed."""
    made()
    fit("whitening:4", "--sample", 120).ok()
    before = load_calibration(str(tmp_path / "c"))
    assert before.info["fitted_on"]["n"] == 120
    fit("whitening:1000").failed(2, "whitening:1000", "components")
    assert load_calibration(str(tmp_path / "c")).digest == before.digest
    assert json.loads((tmp_path / "c" / "fit.json").read_text())["exit_code"] == 2
    assert not list((tmp_path / "c").glob("sample-*"))


def change_shard(store, number: int, change) -> str:
    """Rewrite a shard's table; gives its path."""
    path = open_store(str(store)).manifest.shard_paths[number]
    table = pq.read_table(path)
    pq.write_table(change(table), path)
    return path


def with_vectors(table: pa.Table, change) -> pa.Table:
    """The table with its embeddings changed."""
    at = table.schema.get_field_index("embedding")
    column = table.column("embedding").combine_chunks()
    rows = change(column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1).copy())
    return table.set_column(
        at,
        "embedding",
        pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1]),
    )


def test_float16_shards(made, fit, store, tmp_path):
    made()
    fit("whitening:4", name="wide").ok()
    change_shard(store, 0, lambda table: with_vectors(table, lambda rows: rows.astype(np.float16)))
    fit("whitening:4", name="narrow").ok()
    wide, narrow = (load_calibration(str(tmp_path / name)) for name in ("wide", "narrow"))
    assert (wide.info["summary"]["floor"], narrow.info["summary"]["floor"]) == (1e-8, 1e-6)
    rows = pooled(store)
    assert np.abs(wide.apply(rows) - narrow.apply(rows)).max() < 0.1


def test_a_store_without_rows_is_refused(made, fit):
    made([" ", None], "--max-rejects", 1)
    fit("whitening").failed(2, "holds no rows")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "pca"], ["pca", "whitening", "flow", "tfidf", "token-counts"]),
        (["--method", "whitening", "--store", "b"], ["none already", "name one"]),
        (["--method", "whitening", "--sample", "0"], ["--sample"]),
        (["--method", "whitening"], ["none holds no store"]),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, arguments, said):
    run("fit", "--store", tmp_path / "none", "--output", tmp_path / "c", *arguments).failed(
        2, *said
    )


def test_a_folder_that_no_fit_made_is_left_alone(made, fit, store, tmp_path):
    made()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    fit("standardize", name="mine").failed(2, tmp_path / "mine", "was not made by fit")
    fit("standardize", name="store").failed(2, store, "was not made by fit")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    (tmp_path / "mine" / "notes.txt").unlink()
    fit("standardize", name="mine").ok()
