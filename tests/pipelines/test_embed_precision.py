"""--precision: from one command on a new store, night after night, and from one precision to
another.
"""

from pathlib import Path

import numpy as np
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
from sentence_beam.transforms.search import Searcher
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


def test_the_store_remembers_its_ranges_until_all_is_embedded_again(
    run: Run, embed: Run, make, glob: Path, store: Path
) -> None:
    make("int8", *OPTIONS, "--index", "Flat")
    before, first = manifest_of(store)["ranges"], codes_by_text(store)
    standing = files_in(store, "embeddings", "ranges")
    embed(glob).ok()
    check_ledger(store, 40, carried=40)
    assert files_in(store, "embeddings", "ranges") == standing
    run("vacuum", "--store", store, "--keep", 1).ok()  # the floats of the first night go
    assert [len(list((store / name).iterdir())) for name in ("embeddings", "ranges")] == [2, 1]
    run("verify", "--store", store).ok()

    write_lines(glob.parent / "b.txt", sentences(20, 25))
    embed(glob).ok()
    manifest = check_ledger(store, 45, embedded=5, reused=15, carried=25)
    assert manifest["ranges"] == before
    assert manifest["index"]["change"]["what"] != "trained"
    after = codes_by_text(store)
    assert {text: after[text] for text in first} == first

    write_lines(glob.parent / "a.txt", sentences(5))
    embed(glob).ok()
    assert manifest_of(store)["ranges"] == before
    embed(glob, "--reembed").ok()
    manifest = check_ledger(store, 25, embedded=25)
    assert manifest["ranges"]["digest"] != before["digest"]
    assert (codes(store).max(axis=0) == 127).all()
    make("float32", "--index", "none")
    make("int8", "--index", "Flat")
    change = manifest_of(store)["index"]["change"]
    assert (change["what"], change["why"]) == (
        "trained",
        "the vectors are stored between other bounds",
    )


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
    scores = original @ np.where(original > 0, 1, -1).T / np.sqrt(original.shape[1])
    found = Searcher(open_store(str(store)).manifest).search(vectors=original, k=3, width=0)
    assert [[hit["score"] for hit in hits] for hits in found] == [
        pytest.approx(sorted(expected, reverse=True)[:3], abs=1e-5) for expected in scores
    ]
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


def test_missing_and_changed_ranges_are_named(
    run: Run, embed: Run, make, glob: Path, store: Path
) -> None:
    make("int8", *OPTIONS)
    path = store / manifest_of(store)["ranges"]["path"]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"0.", b"1.", 1))
    assert path.name in run("verify", "--store", store).err
    path.unlink()
    embed(glob).failed(1, path, "is missing", "--precision float32")
    make("float32")
    make("int8")
    assert path.read_bytes() == whole
    other = manifest_of(store)
    other["ranges"]["digest"] = "0" * 64
    edit_manifest(store / "manifest.json", other)
    assert "counts between other ranges" in run("verify", "--store", store).err


def test_a_store_without_rows_gets_its_ranges_with_the_first(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", [" ", ""])
    embed(inputs / "*", "--precision", "int8", "--max-rejects", 1).ok()
    assert manifest_of(store)["ranges"] is None
    write_lines(inputs / "b.txt", sentences(5))
    embed(inputs / "*", "--max-rejects", 1).ok()
    assert check_ledger(store, 5, 2, embedded=5)["ranges"] is not None
    assert codes(store).dtype == np.int8
