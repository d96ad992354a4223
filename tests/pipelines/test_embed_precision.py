"""--precision: from one command on a new store, night after night, and from one precision to
another.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest
from helpers.calibrations import fit_on
from helpers.commands import Outcome, Run
from helpers.corpora import (
    check_ledger,
    edit_manifest,
    files_in,
    manifest_of,
    rows_of,
    sentences,
    write_lines,
)
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space.identity import PRECISIONS
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.shards.precision import CODES, RANGED, Ranges, quantize


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Forty rows in two files, and the glob that names them."""
    write_lines(inputs / "a.txt", sentences(25))
    write_lines(inputs / "b.txt", sentences(15, 25))
    return inputs / "*"


@pytest.fixture
def make(embed: Run, glob: Path):
    """Embed them with some precision."""

    def call(precision: str, *options: object) -> Outcome:
        return embed(glob, "--precision", precision, *options).ok()

    return call


OPTIONS = ("--normalize", "--dtype", "float32", "--keep-columns", "text")


def floats(store: Path, model: Path) -> np.ndarray:
    """The final vectors of the store's texts before they are stored in fewer bits."""
    return Encoder.load(str(model), dtype="float32", normalize=True).encode(
        [row["text"] for row in rows_of(store)]
    )


def codes(store: Path) -> np.ndarray:
    """The column `embedding` as it stands in the shards."""
    column = (
        open_store(str(store)).dataset().to_table(columns=["embedding"]).column(0).combine_chunks()
    )
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


def codes_by_text(store: Path) -> dict[str, list[int]]:
    """The codes of each text."""
    return dict(zip((row["text"] for row in rows_of(store)), codes(store).tolist(), strict=True))


def ranges_of(store: Path) -> Ranges | None:
    """The ranges that the manifest names."""
    entry = manifest_of(store)["ranges"]
    return Ranges.from_bytes((store / entry["path"]).read_bytes(), entry["path"]) if entry else None


def forbid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
        lambda job: pytest.fail("the model was loaded"),
    )


@variants("precision", PRECISIONS, kept=(2,))
def test_one_command_makes_a_store_of_any_precision(
    run: Run, make, store: Path, model: Path, precision: str
) -> None:
    make(precision, *OPTIONS, "--index", "Flat")
    manifest = check_ledger(store, 40, embedded=40)
    assert manifest["space"]["precision"] == precision
    run("verify", "--store", store).ok()

    wanted, ranges, found = floats(store, model), ranges_of(store), codes(store)
    assert found.dtype == CODES[precision]
    if precision in RANGED:
        assert np.allclose(ranges.low, wanted.min(axis=0), atol=1e-6)
        assert np.allclose(ranges.high, wanted.max(axis=0), atol=1e-6)
    else:
        assert manifest["ranges"] is None
    expected = quantize(wanted, precision, ranges)
    if precision in ("float32", "float16"):
        assert np.allclose(found, expected, atol=1e-3)
    else:  # a vector computed in another batch may lie on the other side of half a step
        assert np.mean(found == expected) > 0.98
    column = open_store(str(store)).dataset().to_table(columns=["embedding"]).column(0)
    cosines = (open_store(str(store)).vectors(column) * wanted).sum(axis=1)
    assert cosines.min() > (0.6 if "binary" in precision else 0.9999)

    dataset = open_store(str(store)).dataset()
    assert ("pooled" in dataset.schema.names) == (precision != "float32")
    for row in rows_of(store)[::9] if "binary" not in precision else []:
        for exact in (True, False):
            hit = open_store(str(store)).search([row["text"]], k=1, exact=exact)[0][0]
            assert (hit["id"], hit["score"]) == (row["id"], pytest.approx(1, abs=1e-3))


def test_search_compares_queries_with_what_bits_stand_for(make, store: Path, model: Path) -> None:
    make("binary", *OPTIONS)
    texts, queries = [row["text"] for row in rows_of(store)], floats(store, model)
    signs = (
        np.unpackbits(codes(store).view(np.uint8) ^ 0x80, axis=1, count=queries.shape[1]) * 2.0 - 1
    )
    scores = queries @ signs.T / np.sqrt(queries.shape[1])
    for found, expected in zip(open_store(str(store)).search(texts, k=3), scores, strict=True):
        assert [hit["score"] for hit in found] == pytest.approx(
            sorted(expected, reverse=True)[:3], abs=1e-5
        )


def test_the_store_remembers_and_new_rows_keep_to_its_ranges(
    embed: Run, make, glob: Path, store: Path
) -> None:
    make("int8", *OPTIONS)
    before, first = manifest_of(store), codes_by_text(store)
    standing = files_in(store, "embeddings", "ranges")
    embed(glob).ok()
    check_ledger(store, 40, carried=40)
    assert files_in(store, "embeddings", "ranges") == standing
    write_lines(glob.parent / "b.txt", sentences(20, 25))
    embed(glob).ok()
    manifest = check_ledger(store, 45, embedded=5, reused=15, carried=25)
    assert manifest["ranges"] == before["ranges"]
    after = codes_by_text(store)
    assert {text: after[text] for text in first} == first


def test_from_one_precision_to_another_without_the_model(
    run: Run, make, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("float32", *OPTIONS)
    original, plain = codes(store), manifest_of(store)
    forbid(monkeypatch)
    make("int8")
    check_ledger(store, 40, reused=40)
    ranges = ranges_of(store)
    assert np.array_equal(ranges.low, original.min(axis=0))
    assert np.array_equal(codes(store), quantize(original, "int8", ranges))
    fitted = manifest_of(store)["ranges"]
    make("uint8")
    check_ledger(store, 40, reused=40)
    assert manifest_of(store)["ranges"] == fitted
    assert np.array_equal(codes(store), quantize(original, "uint8", ranges))
    make("ubinary")
    assert np.array_equal(codes(store), np.packbits(original > 0, axis=1))
    make("float32")
    manifest = check_ledger(store, 40)
    assert np.allclose(codes(store), original, atol=1e-6)
    assert (manifest["space"], manifest["ranges"]) == (plain["space"], None)
    run("verify", "--store", store).ok()


def test_calibrations_and_truncation_come_before_and_fit_ranges_of_their_own(
    run: Run, make, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("uint8", *OPTIONS)
    folder = fit_on(store, "whitening:8", tmp_path / "fitted")
    before = manifest_of(store)["ranges"]
    forbid(monkeypatch)
    run("recalibrate", "--store", store, "--calibration", folder).ok()
    manifest = check_ledger(store, 40, reused=40)
    assert manifest["ranges"]["digest"] != before["digest"]
    assert codes(store).shape == (40, 8)
    assert (codes(store).min(axis=0) == 0).all()
    assert (codes(store).max(axis=0) == 255).all()
    names = [unit["path"] for unit in units_of(store, manifest)]
    run("recalibrate", "--store", store, "--calibration", folder).ok()
    assert [unit["path"] for unit in units_of(store)] == names
    make("binary", "--dim", 3)
    assert codes(store).shape == (40, 1)
    run("verify", "--store", store).ok()


def test_reembed_fits_the_ranges_anew(embed: Run, make, glob: Path, store: Path) -> None:
    make("int8", *OPTIONS)
    before = manifest_of(store)["ranges"]
    write_lines(glob.parent / "a.txt", sentences(5))
    embed(glob).ok()
    assert manifest_of(store)["ranges"] == before
    embed(glob, "--reembed").ok()
    check_ledger(store, 20, embedded=20)
    assert manifest_of(store)["ranges"]["digest"] != before["digest"]
    assert (codes(store).max(axis=0) == 127).all()


def test_the_floats_of_the_first_night_go_with_vacuum(
    run: Run, embed: Run, make, glob: Path, store: Path
) -> None:
    make("int8", *OPTIONS)
    embed(glob).ok()
    assert len(list((store / "embeddings").iterdir())) == 4
    run("vacuum", "--store", store, "--keep", 1).ok()
    assert len(list((store / "embeddings").iterdir())) == 2
    assert len(list((store / "ranges").iterdir())) == 1
    run("verify", "--store", store).ok()
    write_lines(glob.parent / "c.txt", sentences(3, 60))
    embed(glob).ok()
    check_ledger(store, 43, embedded=3, carried=40)


def test_an_index_of_other_bounds_is_not_followed(
    embed: Run, make, glob: Path, store: Path
) -> None:
    make("int8", *OPTIONS, "--index", "Flat")
    write_lines(glob.parent / "a.txt", sentences(20))
    embed(glob).ok()
    assert manifest_of(store)["index"]["change"]["what"] != "trained"
    make("float32", "--index", "none")
    make("int8", "--index", "Flat")
    change = manifest_of(store)["index"]["change"]
    assert (change["what"], change["why"]) == (
        "trained",
        "the vectors are stored between other bounds",
    )
    for row in rows_of(store)[::9]:
        exact, found = (
            open_store(str(store)).search([row["text"]], k=3, exact=flag)[0]
            for flag in (True, False)
        )
        assert [hit["score"] for hit in found] == pytest.approx(
            [hit["score"] for hit in exact], abs=1e-6
        )


def test_missing_and_changed_ranges_are_named(
    run: Run, embed: Run, make, glob: Path, store: Path
) -> None:
    make("int8", *OPTIONS)
    path = store / manifest_of(store)["ranges"]["path"]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"0.", b"1.", 1))
    assert path.name in run("verify", "--store", store).err
    embed(glob).failed(1, path, "holds no ranges")
    path.unlink()
    assert path.name in run("verify", "--store", store).err
    embed(glob).failed(1, path, "is missing", "--precision float32")
    make("float32")
    make("int8")
    assert path.read_bytes() == whole
    other = json.loads((store / "manifest.json").read_text())
    other["ranges"]["digest"] = "0" * 64
    edit_manifest(store / "manifest.json", other)
    assert "counts between other ranges" in run("verify", "--store", store).err


def test_a_folder_of_shards_explains_itself(make, store: Path, model: Path) -> None:
    make("uint8", *OPTIONS)
    path = open_store(str(store)).manifest.shard_paths[0]
    metadata = ds.dataset(path).schema.metadata
    ranges = Ranges.from_bytes(metadata[b"ranges"], path)
    assert ranges.digest == manifest_of(store)["ranges"]["digest"]
    assert json.loads(metadata[b"space"])["precision"] == "uint8"


def test_a_store_without_rows_gets_its_ranges_with_the_first(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", [" ", ""])
    embed(inputs / "*", "--precision", "int8", "--max-rejects", 1).ok()
    assert manifest_of(store)["ranges"] is None
    write_lines(inputs / "b.txt", sentences(5))
    embed(inputs / "*", "--max-rejects", 1).ok()
    manifest = check_ledger(store, 5, 2, embedded=5)
    assert manifest["ranges"] is not None
    assert codes(store).dtype == np.int8
