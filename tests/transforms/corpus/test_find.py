"""The files that an `--input` names: folders and other things in the place of files too, and tables
given as folders.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.lakes import iceberg_catalog, rows

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus.find import find_inputs, match_inputs, overlaps


def write(root: str | Path, *names: str) -> None:
    """Files of one line each, wherever the root is."""
    for name in names:
        storage.overwrite(f"{root}/{name}", b"a line\n")


def found(pattern: object, file_format: str = "auto") -> list[str]:
    """The relative paths of the files that a pattern names."""
    return [file.relative for file in match_inputs(str(pattern), file_format)]


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on each kind of storage."""
    return request.getfixturevalue("s3") if request.param == "s3" else str(tmp_path)


def test_a_folder_that_a_pattern_names_is_read_as_the_folder_would_be(root: str) -> None:
    write(
        root,
        "a.txt",
        "b.txt/part-0.txt",
        "b.txt/deep/part-1.txt",
        "b.txt/_SUCCESS",
        "b.txt/.crc",
        "sub/c.jsonl",
    )
    parts = ["b.txt/deep/part-1.txt", "b.txt/part-0.txt"]
    assert found(f"{root}/*.txt") == ["a.txt", *parts]
    assert found(f"{root}/[b].txt") == parts
    assert found(f"{root}/b.txt") == ["deep/part-1.txt", "part-0.txt"]
    assert found(f"{root}/*") == ["a.txt", *parts, "sub/c.jsonl"]
    assert found(f"{root}/{{b.txt,b.txt/deep}}") == parts
    assert f"{root}/b.txt/_SUCCESS" in find_inputs(f"{root}/*.txt", "auto", False).left_out


def test_files_that_a_pattern_names_inside_of_folders_are_those_and_no_others(root: str) -> None:
    write(root, "a.txt", "b.txt/part-0.txt", "b.txt/part-1.jsonl", "sub/c.jsonl")
    assert found(f"{root}/**/*.txt") == ["a.txt", "b.txt/part-0.txt"]
    assert found(f"{root}/**") == ["a.txt", "b.txt/part-0.txt", "b.txt/part-1.jsonl", "sub/c.jsonl"]
    assert found(f"{root}/**.jsonl") == ["b.txt/part-1.jsonl", "sub/c.jsonl"]


@pytest.mark.parametrize(
    ("inside", "pattern", "said"),
    [
        (["part-0.txt", "part-1.jsonl"], "*.txt", "b.txt is a folder of several formats"),
        (["part-0"], "*.txt", "b.txt is a folder without a file of a known format"),
        (["part-0"], "**/*.txt", "b.txt is a folder without a file of a known format"),
        (["part-0.xlsx"], "*.txt", "a file of a known format: 1 .xlsx"),
        ([".hidden"], "*.txt", "b.txt is a folder without files"),
    ],
)
def test_a_folder_that_cannot_be_read_as_one_ends_the_run_by_name(
    root: str, inside: list[str], pattern: str, said: str
) -> None:
    write(root, "a.txt", *(f"b.txt/{name}" for name in inside))
    with pytest.raises(OptionError, match=said) as raised:
        found(f"{root}/{pattern}")
    assert f"{root}/b.txt" in str(raised.value)


@pytest.mark.parametrize("pattern", ["*.txt", "**/*.txt", "**", "{a,b}.txt"])
def test_an_empty_folder_with_the_name_of_a_file_ends_the_run(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "in/a.txt")
    (tmp_path / "in" / "b.txt").mkdir()
    with pytest.raises(OptionError, match=r"in/b\.txt is a folder without files"):
        found(tmp_path / "in" / pattern)


def test_an_empty_folder_of_another_name_below_a_folder_is_none_of_it(tmp_path: Path) -> None:
    write(tmp_path, "in/a.txt")
    (tmp_path / "in" / "sub" / "deep").mkdir(parents=True)
    for pattern in ("**/*.txt", "**", ""):
        inputs = find_inputs(str(tmp_path / "in" / pattern), "auto", False)
        assert [file.relative for file in inputs.files] == ["a.txt"]
        assert {Path(folder).name for folder in inputs.folders} <= {"sub", "deep"}
    with pytest.raises(OptionError, match="in/sub is a folder without files"):
        found(tmp_path / "in" / "*")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.getcwd()
        os.chdir(path.parent)  # a socket's path may have few characters
        server.bind(path.name)
        os.chdir(folder)


@pytest.mark.parametrize("make", [pipe, device, listening])
@pytest.mark.parametrize("pattern", ["*.txt", "**/*.txt", "b.txt", "**", ""])
def test_what_is_neither_file_nor_folder_ends_the_run(
    tmp_path: Path, make: Callable[[Path], None], pattern: str
) -> None:
    write(tmp_path, "in/a.txt")
    make(tmp_path / "in" / "b.txt")
    with pytest.raises(SentenceBeamError, match=r"in/b\.txt is neither a file nor a folder"):
        found(tmp_path / "in" / pattern)
    with pytest.raises(SentenceBeamError, match=r"in/b\.txt is neither a file nor a folder"):
        find_inputs(str(tmp_path / "in" / pattern), "auto", False, broken_too=True)


def test_a_pipe_that_no_input_of_a_folder_could_be_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "in/a.txt")
    pipe(tmp_path / "in" / "control")
    assert found(tmp_path / "in") == ["a.txt"]
    with pytest.raises(SentenceBeamError, match="control is neither"):
        found(tmp_path / "in", "text")


def test_links_to_folders_are_folders(tmp_path: Path) -> None:
    write(tmp_path, "in/a.txt", "parts/part-0.txt")
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "parts")
    for pattern in ("*.txt", "**/*.txt", ""):
        assert found(tmp_path / "in" / pattern) == ["a.txt", "b.txt/part-0.txt"]


def test_the_store_beside_its_input_is_left_out(root: str) -> None:
    write(
        root,
        "in/a.txt",
        "in/store/manifest.json",
        "in/store/embeddings/a.parquet",
        "in/out/other/lease.json",
    )
    for store in ("in/store", "in/out/other"):
        assert not overlaps(f"{root}/in/*", f"{root}/{store}")
    inputs = find_inputs(f"{root}/in/[as]*", "auto", False, store=f"{root}/in/store")
    assert [file.relative for file in inputs.files] == ["a.txt"]
    inputs = find_inputs(f"{root}/in/[ao]*", "auto", False, store=f"{root}/in/out/other")
    assert [file.relative for file in inputs.files] == ["a.txt"]


def test_files_that_hold_no_rows_are_left_out_on_every_storage(root: str) -> None:
    write(
        root,
        "a.parquet",
        "_temporary/0/a.parquet",
        "_day=1/b.parquet",
        "store/manifest.json",
        "store/embeddings/x.parquet",
        "store/sidecars/x.json",
        "hf/data.arrow",
        "hf/cache-1.arrow",
    )
    storage.overwrite(f"{root}/hf/state.json", b'{"_data_files": [{"filename": "data.arrow"}]}')
    assert found(f"{root}/**/*.parquet") == ["_day=1/b.parquet", "a.parquet"]
    assert found(f"{root}/hf") == found(f"{root}/hf/*.arrow") == ["data.arrow"]
    left = find_inputs(f"{root}/**", "auto", False).left_out
    assert {path.removeprefix(f"{root}/"): reason for path, reason in left.items()} == {
        "_temporary/0/a.parquet": "with a leading _",
        "hf/cache-1.arrow": "beside a dataset's data",
        "hf/state.json": "beside a dataset's data",
        "store/embeddings/x.parquet": "of a store",
        "store/manifest.json": "of a store",
        "store/sidecars/x.json": "of a store",
    }


def test_a_bucket_is_a_folder(s3: str) -> None:
    import boto3

    bucket = f"bucket-{s3.rpartition('/')[2]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    write(f"s3://{bucket}", "a.txt", "b/c.txt")
    for name in (f"s3://{bucket}", f"s3://{bucket}/", f"s3://{bucket}/**"):
        assert found(name) == ["a.txt", "b/c.txt"]
        assert overlaps(name, f"s3://{bucket}/store")
    boto3.client("s3").create_bucket(Bucket=f"{bucket}-2")
    with pytest.raises(OptionError, match="no file matches"):
        found(f"s3://{bucket}-2")


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A table of Delta Lake by a column, one row of which was deleted."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder = tmp_path / "lake" / "docs"
    deltalake.write_deltalake(folder, rows("a", "b", "c"), partition_by=["size"])
    deltalake.DeltaTable(folder).delete("id = 'a'")
    return folder


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of Iceberg, one row of which was deleted."""
    table = iceberg_catalog(tmp_path, monkeypatch).create_table(
        "shop.docs", schema=rows("a").schema
    )
    table.append(rows("a", "b", "c"))
    table.delete("id == 'a'")
    return Path(table.metadata_location.removeprefix("file://")).parents[1]


@pytest.mark.parametrize(
    "pattern", ["", "*", "**", "**/*.parquet", "size=1/*.parquet", "size=*/*.parquet", "size=1"]
)
def test_a_delta_table_is_refused_as_a_folder_of_files(delta: Path, pattern: str) -> None:
    with pytest.raises(OptionError, match=rf"docs is a table, .* say input delta:{delta}$"):
        found(delta / pattern)
    assert len(found(f"delta:{delta}")) == 2


def test_a_file_of_a_table_is_refused_by_its_name(delta: Path) -> None:
    for path in delta.rglob("*.parquet"):
        with pytest.raises(OptionError, match="docs is a table"):
            found(path)


@pytest.mark.parametrize("pattern", ["", "*", "**", "**/*.parquet", "data/*.parquet", "data"])
def test_an_iceberg_table_is_refused_as_a_folder_of_files(iceberg: Path, pattern: str) -> None:
    with pytest.raises(
        OptionError, match=rf"{iceberg} is a table, .*input iceberg:.*\.metadata\.json$"
    ) as raised:
        found(iceberg / pattern)
    said = str(raised.value).rpartition("input ")[2]
    latest = max(
        (iceberg / "metadata").glob("*.metadata.json"),
        key=lambda path: int(path.name.partition("-")[0]),
    )
    assert said == f"iceberg:{latest}"
    assert len(found(said)) == 1


@pytest.mark.parametrize("pattern", ["", "*", "**/*.parquet", "*/size=1/*.parquet"])
def test_a_table_among_other_folders_is_refused(delta: Path, pattern: str) -> None:
    pq.write_table(rows("d"), delta.parent / "other.parquet")
    with pytest.raises(OptionError, match=rf"docs is a table, .* say input delta:{delta}$"):
        found(delta.parent / pattern)
    assert found(delta.parent / "other.parquet") == ["other.parquet"]


def test_a_table_on_object_storage_is_refused(delta: Path, s3: str) -> None:
    for path in (path for path in delta.rglob("*") if path.is_file()):
        storage.overwrite(f"{s3}/docs/{path.relative_to(delta)}", path.read_bytes())
    for pattern in ("docs", "docs/size=1/*.parquet", "docs/size=*/p*.parquet", "**/*.parquet"):
        with pytest.raises(OptionError, match=rf"docs is a table, .* say input delta:{s3}/docs$"):
            found(f"{s3}/{pattern}")


def test_folders_that_only_look_like_a_table_are_none(tmp_path: Path) -> None:
    for name in (
        "docs/metadata/a.metadata.json",
        "docs/_delta_log/notes.json",
        "docs/metadata/v1.json",
    ):
        write(tmp_path, name)
    pq.write_table(rows("a"), tmp_path / "docs" / "a.parquet")
    write(tmp_path, "texts/a.txt", "texts/metadata/v1.metadata.json")
    assert found(tmp_path / "docs" / "**" / "*.parquet") == ["a.parquet"]
    assert found(tmp_path / "texts" / "*.txt") == ["a.txt"]
