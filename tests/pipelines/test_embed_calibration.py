"""Calibrations: applied while embedding, to a store that is there, and to queries; kept, checked,
changed, dropped.

Covers pipelines/recalibrate.py.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.calibrations import fit_on
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    rejects_of,
    rows_of,
    sentences,
    vectors_of,
    write_lines,
)
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.calibration import load_calibration
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.steps.embed import load_encoder
from sentence_beam.transforms.store import open_store

METHODS = ["standardize", "remove-top:2", "whitening:8"]


def sixty_rows(folder: Path) -> Path:
    """Sixty rows in two files, and the glob that names them."""
    write_lines(folder / "a.txt", sentences(40))
    write_lines(folder / "b.txt", sentences(20, 40))
    return folder / "*"


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Sixty rows."""
    return sixty_rows(inputs)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of such rows without a calibration, by normalised vectors; tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    named = ("--input", sixty_rows(folder / "in"), "--store", folder / "store", "--model", model)
    assert main(["embed", *map(str, named), "--dtype", "float32", "--normalize"]) == 0
    return folder / "store"


@pytest.fixture
def plain(made: Path, store: Path) -> Path:
    """The test's own store of sixty rows without a calibration."""
    shutil.copytree(made, store)
    return store


def forbid(patch: pytest.MonkeyPatch) -> None:
    """No model can be loaded by a worker, until the patch is undone."""
    patch.setattr(load_encoder, "load_encoder", lambda job: pytest.fail("the model was loaded"))


def expected(model: Path, folder: Path, store: Path) -> np.ndarray:
    """Calibrated and normalised vectors of the store's texts, in the snapshot's order, by numpy."""
    pooled = Encoder.load(str(model), dtype="float32", normalize=False).encode(
        [row["text"] for row in rows_of(store)]
    )
    tensors = load_calibration(str(folder)).tensors
    rows = pooled.astype(np.float64) - tensors["mean"]
    rows = rows * tensors["scale"] if "scale" in tensors else rows
    if "directions" in tensors:
        rows = rows - rows @ tensors["directions"].T @ tensors["directions"]
    rows = rows @ tensors["kernel"] if "kernel" in tensors else rows
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def assert_calibrated(store: Path, model: Path, folder: Path) -> None:
    found, wanted = np.array(list(vectors_of(store).values())), expected(model, folder, store)
    assert (found * wanted).sum(axis=1).min() >= 0.99999
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


# --- applied


@variants("method", METHODS, kept=(2,))
def test_on_the_fly_afterwards_and_by_embed_alone_give_the_same(
    run: Run, embed: Run, plain: Path, glob: Path, store: Path, model: Path, tmp_path: Path, method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = fit_on(store, method, tmp_path / "fitted")
    other, fresh = tmp_path / "other", tmp_path / "fresh"
    options = ("--model", model, "--dtype", "float32", "--normalize")
    shutil.copytree(store, other)
    run("embed", "--input", glob, "--store", fresh, *options, "--calibration", folder).ok()
    with monkeypatch.context() as patch:
        forbid(patch)
        run("recalibrate", "--store", store, "--calibration", folder).ok()
        run("embed", "--input", glob, "--store", other, "--calibration", folder).ok()
    manifests = [manifest_of(place) for place in (store, other, fresh)]
    assert [m["work"]["reused"] for m in manifests] == [60, 60, 0]
    assert len({json.dumps(m["space"]) for m in manifests}) == 1
    listed = [[unit["path"] for unit in units_of(place)] for place in (store, other, fresh)]
    assert listed[0] == listed[1] == listed[2]
    for place in (store, other, fresh):
        assert_calibrated(place, model, folder)
        run("verify", "--store", place).ok()


def test_recalibrating_reads_no_input_and_keeps_every_row_and_reject(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    write_lines(inputs / "a.txt", [*sentences(30), "", "  "])
    write_lines(inputs / "b.txt", [""])
    embed(inputs / "*", "--max-rejects", 0.5, "--normalize").ok()
    before = [{k: v for k, v in row.items() if k != "pooled"} for row in rows_of(store)]
    rejected, folder = rejects_of(store), fit_on(store, "whitening:8", tmp_path / "fitted")
    moved = inputs.rename(tmp_path / "moved")
    out = run("recalibrate", "--store", store, "--calibration", folder).ok().out
    assert "30 with other vectors" in out
    manifest = check_ledger(store, 30, 3, reused=30)
    digest = load_calibration(str(folder)).digest
    assert manifest["space"]["calibration"] == digest
    assert manifest["calibration"] == {"path": f"calibrations/{digest}", "digest": digest}
    assert manifest["space"]["dim"] == 8
    assert [{k: v for k, v in row.items() if k != "pooled"} for row in rows_of(store)] == before
    assert rejects_of(store) == rejected
    embed(moved / "*", "--max-rejects", 0.5).ok()
    check_ledger(store, 30, 3, carried=30)


def test_one_calibration_after_another_and_back(
    run: Run, embed: Run, plain: Path, glob: Path, store: Path, model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before = vectors_of(store)
    first = fit_on(store, "standardize", tmp_path / "first")
    forbid(monkeypatch)
    run("recalibrate", "--store", store, "--calibration", first).ok()
    # of the pooled vectors, which are still there
    second = fit_on(store, "whitening:8", tmp_path / "second")
    embed(glob, "--calibration", second).ok()
    assert_calibrated(store, model, second)
    run("recalibrate", "--store", store, "--calibration", first).ok()
    assert_calibrated(store, model, first)
    assert "calibration none" in run("recalibrate", "--store", store, "--calibration", "none").out
    manifest = check_ledger(store, 60, reused=60)
    assert (manifest["calibration"], manifest["space"]["calibration"]) == (None, None)
    after = vectors_of(store)
    assert np.allclose([before[i] for i in before], [after[i] for i in before], atol=1e-6)
    out = run("recalibrate", "--store", store, "--calibration", "none").ok().out
    assert out == f"nothing to do: the vectors of {store} have no calibration\n"
    assert manifest_of(store) == manifest


def test_truncation_comes_after_the_calibration_and_a_wider_one_is_forgotten(
    run: Run, embed: Run, plain: Path, glob: Path, store: Path, model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = fit_on(store, "whitening:8", tmp_path / "fitted")
    forbid(monkeypatch)
    embed(glob, "--calibration", folder, "--dim", 3).ok()
    wanted = expected(model, folder, store)[:, :3]
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert np.allclose(list(vectors_of(store).values()), wanted, atol=1e-4)
    embed(glob, "--dim", 8).ok()
    assert_calibrated(store, model, folder)
    embed(glob, "--dim", 9).failed(2, "truncate dim 9", "8 components")
    for command in ("recalibrate", "embed"):
        embed(glob, "--dim", 12, "--calibration", "").ok()
        source = ("--input", glob) if command == "embed" else ()
        run(command, *source, "--store", store, "--calibration", folder).ok()
        space = check_ledger(store, 60)["space"]
        assert (space["truncate_dim"], space["dim"]) == (None, 8)
        embed(glob).ok()
        check_ledger(store, 60, carried=60)


@variants("method", ["standardize+remove-top:1", "flow:levels=2,depth=1,width=4"], kept=(0,))
def test_embed_fit_recalibrate_and_again(
    run: Run, embed: Run, glob: Path, store: Path, model: Path, tmp_path: Path, method: str
) -> None:
    embed(glob).ok()
    for night in ("first", "second"):
        folder = tmp_path / night
        assert run("fit", "--store", store, "--method", method, "--output", folder).status == 0
        run("recalibrate", "--store", store, "--calibration", folder).ok()
        manifest = check_ledger(store, 60, reused=60)
        assert manifest["calibration"]["digest"] == load_calibration(str(folder)).digest
        encoder = Encoder.load(model, dtype=manifest["space"]["dtype"], calibration=folder)
        assert encoder.space.id == manifest["space"]["id"]
        wanted = encoder.encode([row["text"] for row in rows_of(store)])
        found = np.array(list(vectors_of(store).values()))
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        # the forward pass may be bfloat16
        assert ((found * wanted).sum(axis=1) / lengths).min() >= 0.999
        embed(glob).ok()
        check_ledger(store, 60, carried=60)


# --- remembered


def test_a_store_remembers_its_calibration_and_its_index_is_of_the_new_vectors(
    run: Run, embed: Run, plain: Path, glob: Path, store: Path, model: Path, tmp_path: Path
) -> None:
    folder = fit_on(store, "remove-top:2", tmp_path / "fitted")
    run("index", "--store", store, "--index", "Flat").ok()
    out = run("recalibrate", "--store", store, "--calibration", folder).ok().out
    assert "index       Flat" in out
    assert manifest_of(store)["index"]["rows"] == 60
    copy = folder.rename(tmp_path / "gone")
    embed(glob).ok()
    check_ledger(store, 60, carried=60)
    write_lines(glob.parent / "c.txt", sentences(5, 100))
    embed(glob).ok()
    check_ledger(store, 65, embedded=5, carried=60)
    assert_calibrated(store, model, copy)
    for row in rows_of(store)[::7]:
        hit = open_store(str(store)).search([row["text"]], k=1)[0][0]
        assert (hit["id"], round(hit["score"], 5)) == (row["id"], 1)


def test_a_damaged_copy_in_the_store_is_named_and_mended(
    run: Run, embed: Run, plain: Path, glob: Path, store: Path, tmp_path: Path
) -> None:
    folder, before = fit_on(store, "standardize", tmp_path / "fitted"), files_in(store)
    run("plan", "--input", glob, "--store", store, "--calibration", folder).ok()
    assert files_in(store) == before  # which has no copy of it
    embed(glob, "--calibration", folder).ok()
    path = store / manifest_of(store)["calibration"]["path"] / "calibration.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert str(path.parent) in run("verify", "--store", store).err
    embed(glob).failed(1, path, "--calibration")
    run("search", "--store", store, "--query", "dog").failed(1, path)
    embed(glob, "--calibration", folder).ok()
    run("verify", "--store", store).ok()
    run("search", "--store", store, "--query", "dog").ok()


# --- refused


def test_a_calibration_of_another_space_is_refused_by_field(
    run: Run, plain: Path, glob: Path, store: Path, model: Path, tmp_path: Path
) -> None:
    named, other = ("--input", glob), ("--store", tmp_path / "other")
    run("embed", *named, *other, "--model", model, "--pooler", "max", "--dtype", "float32").ok()
    folder, before = fit_on(other[1], "standardize", tmp_path / "fitted"), files_in(store)
    for command in ("embed", "recalibrate", "plan"):
        source = named if command != "recalibrate" else ()
        run(command, *source, "--store", store, "--calibration", folder).failed(
            2, "another space (pooler differ)", folder
        )
    assert files_in(store) == before


def test_embedding_anew_in_another_space_asks_what_to_do_with_the_calibration(
    run: Run, embed: Run, plain: Path, glob: Path, store: Path, tmp_path: Path
) -> None:
    embed(glob, "--calibration", fit_on(store, "standardize", tmp_path / "fitted")).ok()
    embed(glob, "--pooler", "max").failed(2, "another space", "--reembed")
    embed(glob, "--pooler", "max", "--reembed").failed(2, "pooler differ", "--calibration")
    embed(glob, "--pooler", "max", "--reembed", "--calibration", "").ok()
    check_ledger(store, 60, embedded=60)


def test_rows_that_a_calibration_was_not_fitted_for_are_named(
    run: Run, embed: Run, plain: Path, inputs: Path, store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "fitted"
    run("fit", "--store", store, "--method", "standardize", "--output", folder).ok()
    everything = run("recalibrate", "--store", store, "--calibration", folder, "--json").ok()
    moved = json.loads(everything.out)["moved"]
    assert (moved["rows"], moved["reach"]) == (60, pytest.approx(1, abs=1e-3))
    assert moved["distance"] < 0.05
    same = write_lines(inputs / "c.txt", sentences(60, 60))
    assert "fit it again" not in embed(inputs / "*", "--max-deletes", "1").ok().out
    same.unlink()
    write_lines(inputs / "d.txt", [f"{'0 ' * (10 + i)}?" for i in range(60)])
    out = embed(inputs / "*", "--max-deletes", "1", "--max-unknown", "1").ok().out
    (line,) = (line for line in out.splitlines() if line.startswith("fitted"))
    assert "60 rows of this run" in line
    assert "above 0.3 they do not resemble them: fit it again" in line
    result = json.loads((store / "runs" / manifest_of(store)["run"] / "result.json").read_text())
    assert result["moved"]["distance"] > result["moved"]["far"] == 0.3
