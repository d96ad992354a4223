"""`fit` on a store: the same calibration from any number of shards, what a person sees, and what is
refused.

Covers pipelines/common/fit_picture.py.
Covers transforms/steps/fit/jobs.py.
"""

import json
import shutil
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.snapshots import units_of
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
        embed(
            write_parquet(inputs / "a.parquet", texts, row_group_size=6),
            "--dtype",
            "float32",
            *options,
        ).ok()

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


def test_the_same_from_one_shard_and_from_fifty(run, model, inputs, tmp_path):
    write_parquet(inputs / "one" / "a.parquet", TEXTS)
    for i in range(50):
        write_parquet(inputs / "fifty" / f"{i:02d}.parquet", TEXTS[6 * i : 6 * i + 6])
    found = {}
    # a unit of which no file is a small part
    for name, size in (("one", 100_000), ("fifty", 4000)):
        store, files = tmp_path / name, inputs / name / "*.parquet"
        run(
            "embed",
            "--input",
            files,
            "--store",
            store,
            "--model",
            model,
            "--dtype",
            "float32",
            "--unit-tokens",
            size,
        ).ok()
        run(
            "fit", "--store", store, "--method", "whitening", "--output", tmp_path / f"c-{name}"
        ).ok()
        found[name] = load_calibration(str(tmp_path / f"c-{name}"))
        assert len(units_of(store)) == {"one": 1, "fifty": 50}[name]
    one, fifty = found["one"].tensors, found["fifty"].tensors
    for name in one:
        # batches differ, so do vectors
        assert np.abs(one[name] - fifty[name]).max() <= 1e-4 * np.abs(one[name]).max()
    rows = pooled(tmp_path / "one")
    assert np.abs(found["one"].apply(rows) - found["fifty"].apply(rows)).max() < 1e-3


@variants("method", METHODS, kept=(2, 5))
def test_a_fit_is_whole_and_says_what_it_found(made, fit, store, tmp_path, method):
    made()
    out = fit(method).ok().out
    calibration, rows = load_calibration(str(tmp_path / "c")), pooled(store)
    after, info = calibration.apply(rows), calibration.info
    assert np.isfinite(after).all()
    if method.startswith("whitening"):
        assert np.abs(np.cov(after.T) - np.eye(after.shape[1])).max() < 1e-3
    elif method != "flow:depth=1":
        assert np.abs(after.mean(axis=0)).max() < 1e-4
    manifest = manifest_of(store)
    fitted_on = info["fitted_on"]
    assert (fitted_on["store"], fitted_on["run"], fitted_on["n"]) == (
        str(store),
        manifest["run"],
        300,
    )
    assert fitted_on["space"]["id"] == manifest["space"]["id"]
    assert calibration.pooled_id == manifest["space"]["pooled_id"]
    lines = {line[:12].strip(): line[12:] for line in out.splitlines()}
    assert lines["n"] == "300 rows"
    assert lines["d"] == f"{rows.shape[1]} in, {after.shape[1]} out"
    assert set(lines) >= {
        "method",
        "k_eff",
        "condition",
        "variance",
        "cosine",
        "calibration",
        "picture",
        "use",
    }
    assert ("NLL" in lines) == method.startswith("flow")
    result = json.loads((tmp_path / "c" / "fit.json").read_text())
    assert len(result["shape_before"]["cosines"]) == 100
    assert {path.name for path in (tmp_path / "c").iterdir() if not path.name.startswith(".")} == {
        "calibration.json", "calibration.safetensors", "fit.json", "fit.svg"
    }  # fmt: skip
    drawn = ElementTree.parse(tmp_path / "c" / "fit.svg")
    assert len(drawn.findall("{*}svg")) == (3 if method.startswith("flow") else 2)


def test_the_pooled_vectors_are_those_of_the_encoder(made, fit, model, tmp_path):
    made()
    fit("standardize").ok()
    rows = Encoder.load(str(model), dtype="float32", normalize=False).encode(TEXTS)
    mean = load_calibration(str(tmp_path / "c")).tensors["mean"]
    assert np.abs(mean - rows.astype(np.float64).mean(axis=0)).max() <= 1e-5 * np.abs(rows).max()


def test_a_sample_is_drawn_by_hash_and_is_the_same_each_time(made, fit, tmp_path):
    made()
    digests = set()
    for name in ("a", "b"):
        fit("whitening:4", "--sample", 120, name=name).ok()
        info = load_calibration(str(tmp_path / name)).info
        assert info["fitted_on"]["n"] == 120
        digests.add(info["digest"])
    assert len(digests) == 1
    fit("whitening:4", name="all").ok()
    assert load_calibration(str(tmp_path / "all")).digest not in digests


def test_a_failed_fit_leaves_the_last_calibration(made, fit, tmp_path):
    made()
    fit("standardize").ok()
    before = load_calibration(str(tmp_path / "c")).digest
    fit("whitening:1000").failed(2, "whitening:1000", "components")
    assert load_calibration(str(tmp_path / "c")).digest == before
    assert json.loads((tmp_path / "c" / "fit.json").read_text())["exit_code"] == 2


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


@variants("method", ["whitening", "flow"], kept=(0,))
def test_a_vector_that_is_not_finite_is_refused_by_shard_and_row(
    made, fit, store, tmp_path, method
):
    made(TEXTS, "--unit-tokens", 100)

    def spoil(rows):
        rows[3, 1] = np.nan
        return rows

    path = change_shard(store, 2, lambda table: with_vectors(table, spoil))
    fit(method).failed(1, path, "row 3 is not finite")
    assert not (tmp_path / "c" / "calibration.json").exists()
    assert not list((tmp_path / "c").glob("sample-*"))


def test_float16_shards(made, fit, store, tmp_path):
    made()
    fit("whitening:4", name="wide").ok()
    change_shard(store, 0, lambda table: with_vectors(table, lambda rows: rows.astype(np.float16)))
    fit("whitening:4", name="narrow").ok()
    wide, narrow = (load_calibration(str(tmp_path / name)) for name in ("wide", "narrow"))
    assert (wide.info["summary"]["floor"], narrow.info["summary"]["floor"]) == (1e-8, 1e-6)
    rows = pooled(store)
    assert np.abs(wide.apply(rows) - narrow.apply(rows)).max() < 0.1


@variants("method", METHODS[:-1], kept=(2,))
def test_fewer_rows_than_components(made, fit, store, tmp_path, method):
    made(TEXTS[:6])
    fit(method).ok()
    calibration = load_calibration(str(tmp_path / "c"))
    assert np.isfinite(calibration.apply(pooled(store))).all()
    if method.startswith("whitening"):
        assert calibration.info["summary"]["k_eff"] == 5


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (TEXTS[:1], ["two rows or more"]),
        ([TEXTS[0]] * 5, ["all 5 rows are equal"]),
        ([" ", None], ["holds no rows"]),
    ],
)
def test_too_little_to_fit_on(made, fit, texts, said):
    made(texts, "--max-rejects", 1)
    fit("whitening").failed(2, *said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "pca"], ["pca", "whitening", "flow", "tfidf", "token-counts"]),
        (["--method", "whitening:x"], ["width=x", "allowed"]),
        (["--method", "whitening", "--text-column", "t"], ["--text-column", "has no meaning"]),
        (["--method", "whitening", "--input", "b"], ["--input", "has no meaning"]),
        (["--method", "whitening", "--store", "b"], ["none already", "name one"]),
        (["--method", "tfidf"], ["--store", "has no meaning"]),
        (["--method", "whitening", "--sample", "0"], ["--sample"]),
        (["--method", "whitening"], ["holds no store"]),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, arguments, said):
    run("fit", "--store", tmp_path / "none", "--output", tmp_path / "c", *arguments).failed(
        2, *said
    )


def test_what_is_fitted_on_has_to_be_there(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("fit", "--method", "whitening", "--output", tmp_path / "c").failed(2, "holds no store")
    run("fit", "--method", "tfidf", "--output", tmp_path / "c").failed(
        2, "--method tfidf", "--input"
    )


def test_a_folder_that_no_fit_made_is_left_alone(made, fit, run, store, tmp_path):
    made(TEXTS[:60])
    fit("standardize").ok()
    fit("whitening:4").ok()  # an earlier fit's folder
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    fit("standardize", name="mine").failed(
        2, tmp_path / "mine", "holds notes.txt", "was not made by fit"
    )
    fit("standardize", name="mine/notes.txt").failed(2, "notes.txt is a file; name a folder")
    fit("standardize", name="store").failed(2, store, "was not made by fit")
    counted = ("fit", "--input", tmp_path / "in" / "*", "--method", "tfidf", "--output")
    run(*counted, tmp_path / "mine").failed(2, "holds notes.txt")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    fit("standardize", name="empty").ok()


def test_a_flow_says_how_many_rows_it_needs(made, fit):
    made(TEXTS[:49])
    fit("flow").failed(2, "49 vectors are too few to fit on; it needs 50 or more")
