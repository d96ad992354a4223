"""`export --vectors`: each folder opened by the library that it is for.

Covers transforms/steps/joins/export_parts.py.
Covers transforms/beam/written_parts.py.
"""

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_bytes, write_parquet
from helpers.variants import variants

from sentence_beam.transforms import storage
from sentence_beam.transforms.steps.joins import export_parts
from sentence_beam.transforms.store import Store, open_store

TEXTS = sentences(70)


@pytest.fixture(scope="module", params=["IVF4,RaBitQ4", "none"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Path
) -> Path:
    """A store of several shards, with an index or without."""
    from sentence_beam.pipelines.cli import main

    folder = tmp_path_factory.mktemp("exported")
    write_parquet(folder / "a.parquet", TEXTS, key=[f"k{n}" for n in range(70)], n=list(range(70)))
    command = [
        "embed",
        "--input",
        str(folder / "a.parquet"),
        "--store",
        str(folder / "store"),
        "--model",
        str(model),
    ]
    command += [
        "--id-column",
        "key",
        "--keep-columns",
        "n",
        "--unit-tokens",
        "150",
        "--index",
        request.param,
    ]
    assert main(command) == 0
    return folder / "store"


def exported(run: Run, store: Path, kind: str) -> tuple[Path, Store]:
    """The folder of an export, made twice, and the store."""
    folder = store.parent / kind
    for _ in range(2):
        run("export", "--store", store, "--vectors", kind, "--output", folder).ok()
    about = json.loads((folder / "vectors.json").read_text())
    opened = open_store(str(store))
    assert (about["rows"], about["dim"], about["space"]) == (70, opened.space.dim, opened.space.id)
    assert all((folder / name).exists() for name in about["files"])
    return folder, opened


def test_a_matrix_of_numpy(run: Run, made: Path) -> None:
    folder, store = exported(run, made, "npy")
    ids, vectors = store.numpy()
    found = np.load(folder / "vectors.npy", allow_pickle=False, mmap_mode="r")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors)
    assert pq.read_table(folder / "ids.parquet").column("id").to_pylist() == ids.tolist()


def test_an_index_of_faiss(run: Run, made: Path) -> None:
    faiss = pytest.importorskip("faiss")
    folder, store = exported(run, made, "faiss")
    ids, vectors = store.numpy()
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.read_index(str(folder / "index.faiss"))
    names = pq.read_table(folder / "ids.parquet").column("id").to_pylist()
    assert (type(index).__name__, index.ntotal, names) == ("IndexIDMap2", 70, ids.tolist())
    if store.manifest.index is not None:
        faiss.extract_index_ivf(index).nprobe = 4
    scores, found = index.search(np.ascontiguousarray(vectors[:9]), 5)
    assert (found[:, 0] == np.arange(9)).mean() > 0.8
    np.testing.assert_allclose(
        scores, np.einsum("qd,qkd->qk", vectors[:9], vectors[found]), atol=0.05
    )


def test_a_table_of_lancedb(run: Run, made: Path) -> None:
    lancedb = pytest.importorskip("lancedb")
    folder, store = exported(run, made, "lance")
    ids, vectors = store.numpy()
    table = lancedb.connect(str(folder)).open_table("rows")
    found = table.to_arrow()
    assert found.column_names == ["id", "vector", "text", "n"]
    assert found["id"].to_pylist() == ids.tolist()
    np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), np.float32), vectors)
    assert table.search(vectors[3]).distance_type("cosine").limit(1).to_list()[0]["id"] == ids[3]


def test_lancedb_that_is_not_installed(
    run: Run, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    out = tmp_path / "out"
    run("export", "--store", made, "--vectors", "lance", "--output", out).failed(
        2, "pip install -c ", "[lance]"
    )
    assert not list(tmp_path.iterdir())


def test_what_is_no_export_is_left_alone(run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    run("export", "--store", made, "--vectors", "npy", "--output", tmp_path).failed(
        2, "--output", "is no export"
    )
    run("export", "--store", made, "--vectors", "parquet", "--output", tmp_path).failed(
        2, "--vectors"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def read_parts(output: str) -> tuple[dict[str, Any], list[str], np.ndarray]:
    """What an export in parts says of itself, its ids and its vectors."""
    about = json.loads(storage.read_bytes(f"{output}/vectors.json"))
    ids: list[str] = []
    vectors = []
    for part in about["parts"]:
        table = pq.read_table(io.BytesIO(storage.read_bytes(f"{output}/{part['ids']}")))
        vectors.append(np.load(io.BytesIO(storage.read_bytes(f"{output}/{part['vectors']}"))))
        ids += table.column("id").to_pylist()
        assert len(vectors[-1]) == len(table) == part["rows"]
    return about, ids, np.concatenate(vectors)


@variants("flags", [(), ("--runner", "FnApiRunner")], kept=(1,), ids=["here", "workers"])
def test_a_matrix_in_parts_on_object_storage(
    run: Run, made: Path, gs: str, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    store = open_store(str(made))
    monkeypatch.setattr(export_parts, "PART_BYTES", 4 * store.space.dim * 25)
    ids, vectors = store.numpy()
    output = f"{gs}/out"
    command = ("export", "--store", made, "--vectors", "npy", "--output", output, *flags)
    for _ in range(2):  # the second export replaces the first
        run(*command).ok()
        about, found_ids, found = read_parts(output)
        assert (about["rows"], len(about["parts"]) > 2) == (70, True)
        assert found_ids == ids.tolist()
        np.testing.assert_array_equal(found, vectors)
        there = [entry.path for entry in storage.storage_of(output).below(output)]
        assert len(there) == 1 + 2 * len(about["parts"])
    run(*command, "--where", "n < 30").ok()
    about, found_ids, found = read_parts(output)
    wanted = store.dataset().to_table(columns=["n"])["n"].to_numpy() < 30
    assert (about["rows"], found_ids) == (30, ids[wanted].tolist())
    np.testing.assert_array_equal(found, vectors[wanted])


def test_a_matrix_in_parts_on_s3(run: Run, made: Path, s3: str) -> None:
    ids, vectors = open_store(str(made)).numpy()
    for _ in range(2):
        run("export", "--store", made, "--vectors", "npy", "--output", f"{s3}/out").ok()
    about, found_ids, found = read_parts(f"{s3}/out")
    assert found_ids == ids.tolist()
    np.testing.assert_array_equal(found, vectors)
    assert len(storage.storage_of(s3).below(f"{s3}/out")) == 1 + 2 * len(about["parts"])


def read_tables(output: str, folder: Path) -> tuple[dict[str, Any], pa.Table]:
    """What an export in tables says of itself, and their rows; all its files are copied."""
    lancedb = pytest.importorskip("lancedb")
    for entry in storage.storage_of(output).below(output):
        path = folder / entry.path.removeprefix(f"{output}/")
        write_bytes(path, storage.read_bytes(entry.path))
    about = json.loads((folder / "vectors.json").read_text())
    database = lancedb.connect(str(folder))
    names = [part["table"] for part in about["parts"]]
    assert sorted(database.list_tables().tables) == sorted(names)
    tables = [database.open_table(name).to_arrow() for name in names]
    assert [len(table) for table in tables] == [part["rows"] for part in about["parts"]]
    return about, pa.concat_tables(tables)


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_tables_of_lancedb_in_parts(
    run: Run, made: Path, gs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb")
    store = open_store(str(made))
    monkeypatch.setattr(export_parts, "PART_BYTES", 4 * store.space.dim * 25)
    ids, vectors = store.numpy()
    here = str(tmp_path / "here")
    for output, flags in ((here, ("--runner", "FnApiRunner")), (f"{gs}/out", ())):
        command = ("export", "--store", made, "--vectors", "lance", "--output", output, *flags)
        if not flags:
            run(*command).ok()
        else:
            run(*command[:-2]).ok()  # one table, which the second export replaces
        run(*command).ok()
        about, found = read_tables(output, tmp_path / f"copy{len(flags)}")
        assert (about["kind"], about["rows"], len(about["parts"]) > 2) == ("lance", 70, True)
        assert found.column_names == ["id", "vector", "text", "n"]
        assert found["id"].to_pylist() == ids.tolist()
        np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), np.float32), vectors)


def test_a_part_that_is_written_twice_is_there_once(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    manifest = open_store(str(made)).manifest
    output = str(tmp_path / "out")
    job = export_parts.ExportJob(
        manifest.root, manifest.run, manifest.digest, output, "ab", "lance"
    )
    (part,) = export_parts.cut_parts(job)
    export_parts.write_part(part, job)
    export_parts.conclude([export_parts.write_part(part, job)], job)
    assert len(list((tmp_path / "out").glob("*.lance"))) == 1
    about, found = read_tables(output, tmp_path / "copy")
    assert len(about["parts"]) == 1
    assert len(found) == 70


def test_a_folder_or_a_store_that_an_export_in_parts_cannot_use(
    run: Run, made: Path, gs: str, tmp_path: Path
) -> None:
    storage.overwrite(f"{gs}/mine/a.txt", b"mine")
    command = ("export", "--vectors", "npy", "--output")
    run(*command, f"{gs}/mine", "--store", made).failed(2, f"{gs}/mine", "is no export")
    run("export", "--output", f"{gs}/out", "--store", made).failed(2, "local folder")
    run(*command, f"{gs}/out", "--store", made, "--where", "m < 1").failed(2, "m")
    damaged = shutil.copytree(made, tmp_path / "store")
    next(damaged.glob("embeddings/*")).write_bytes(b"nothing")
    line = run(*command, f"{gs}/out", "--store", damaged).failed(1, "embeddings")
    assert "traceback" not in line.lower()
    assert not storage.storage_of(gs).below(f"{gs}/out/")
