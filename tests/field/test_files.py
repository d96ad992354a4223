"""Folders as other programs leave them: which of their files hold rows.

Covers transforms/corpus/left_out.py.
Covers transforms/corpus/first_bytes.py.
Covers transforms/corpus/beside.py.
"""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns, list_files, read_files, read_header
from sentence_beam.transforms.corpus.beside import Beside, merge_counts
from sentence_beam.transforms.corpus.find import find_inputs

POINTER = (
    f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d7a' * 16}\nsize 12345\n".encode()
)
ROW = b'{"text": "row"}\n'
STATE = {"_data_files": [{"filename": "data-0.arrow"}], "_fingerprint": "x", "_split": None}


def name_of(value: object) -> str:
    """The name of a case: its text; bytes would tell the time at which they were packed."""
    if isinstance(value, str):
        return value
    return ""


def state(*names: str, **fields: Any) -> bytes:
    """The list of data files that datasets writes."""
    return json.dumps({**STATE, "_data_files": [{"filename": n} for n in names], **fields}).encode()


def put(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Files of these bytes, or with one row of this text in the format of their names."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".parquet"):
            pq.write_table(pa.table({"text": [content]}), path)
        elif name.endswith(".arrow"):
            with pa.ipc.new_stream(path, pa.schema([("text", pa.string())])) as writer:
                writer.write_table(pa.table({"text": [content]}))
        elif name.endswith(".csv"):
            path.write_text(f"text\n{content}\n")
        elif name.endswith((".json", ".jsonl")):
            path.write_text(json.dumps({"text": content}) + "\n")
        else:
            path.write_text(content)


def texts(pattern: Path | str, file_format: str = "auto") -> list[str]:
    """All texts that are read, in order."""
    units = read_files(list_files([str(pattern)], file_format), Columns())
    return [text for unit in units for text in unit.texts]


@dataclass(frozen=True)
class Left:
    """A folder: what wrote it, its files, and the texts that each input gives."""

    by: str
    files: Mapping[str, bytes | str]
    right: Mapping[str, list[str]]
    file_format: str = "auto"


SPARK = {
    "part-0.parquet": "a",
    "_temporary/0/task_1/part-0.parquet": "half",
    "_SUCCESS": b"",
    "_metadata": b"PAR1",
    "_committed_12": b"{}",
    ".part-0.parquet.crc": b"crc",
}
EVERY = {"": ["a"], "*": ["a"], "**": ["a"], "**/*.parquet": ["a"]}
SAVED = {
    "data-0.arrow": "a",
    "cache-48e116202455ac69.arrow": "A",
    "state.json": state("data-0.arrow"),
    "dataset_info.json": b"{}",
}
SPLITS = {
    "dataset_dict.json": b'{"splits": ["test", "train"]}',
    "test/data-0.arrow": "a",
    "test/state.json": state("data-0.arrow"),
    "test/dataset_info.json": b"{}",
    "train/data-00000-of-00002.arrow": "b",
    "train/data-00001-of-00002.arrow": "c",
    "train/cache-48e116202455ac69_00000_of_00002.arrow": "B",
    "train/state.json": state("data-00000-of-00002.arrow", "data-00001-of-00002.arrow"),
}
SITE = {"_index.md": "home", "_posts/a.md": "post", "about.md": "about", "_data/x.csv": "no page"}
STORE = {
    "docs/a.parquet": "a",
    "docs/store/manifest.json": b"{}",
    "docs/store/embeddings/0a-0b.parquet": "a row of the store",
    "docs/store/sidecars/0a-0b.json": b"{}",
    "docs/store/runs/r1/plan.parquet": "a row of the plan",
}
LEFT = [
    Left("Spark, Parquet", SPARK, EVERY),
    Left(
        "Spark, a job that runs; JSON",
        {"part-0.json": "a", "_temporary/0/_x/part-0.json": "half", "_spark_metadata/0": b"v1"},
        {"": ["a"], "*": ["a"], "**": ["a"], "**/*.json": ["a"]},
    ),
    Left(
        "Spark, text",
        {"part-0.txt": "a", "_temporary/0/part-0.txt": "half", "_SUCCESS": b""},
        {"": ["a"], "*": ["a"], "**/*": ["a"]},
    ),
    Left(
        "Spark, text without endings",
        {"part-0": "a", "_SUCCESS": b"", "_temporary/0/part-0": "half"},
        {"": ["a"], "**": ["a"]},
        "text",
    ),
    Left("Impala", {"a.parquet": "a", "_impala_insert_staging/x/a.parquet": "half"}, EVERY),
    Left("the S3A committer", {"a.csv": "a", "__magic/job-1/a.csv": "half"}, {"**/*.csv": ["a"]}),
    Left(
        "Beam, a killed job",
        {"out-0.jsonl": "a", f"beam-temp-out-{'0b' * 16}/1f.out.jsonl": "half"},
        {
            "": ["a"],
            "**": ["a"],
            "**/*.jsonl": ["a"],
            f"beam-temp-out-{'0b' * 16}/1f.out.jsonl": ["half"],
        },
    ),
    Left(
        "Hive, a partition column with a leading _",
        {"_day=1/a.parquet": "a", "_day=2/b.parquet": "b", "_x/c.parquet": "half"},
        {"": ["a", "b"], "*/*.parquet": ["a", "b"], "**": ["a", "b"]},
    ),
    Left(
        "a user, who writes the _ of a pattern",
        {"_old/a.csv": "a", "_b.csv": "b", "c.csv": "c"},
        {"_old/*.csv": ["a"], "_*.csv": ["b"], "_b.csv": ["b"], "{_b,c}.csv": ["b", "c"]},
    ),
    Left(
        "Jekyll, Hugo", SITE, {"": ["home", "post", "about"], "**/*.md": ["home", "post", "about"]}
    ),
    Left("Hugo", {"en/_index.md": "a", "en/b.md": "b"}, {"*": ["a", "b"], "en": ["a", "b"]}),
    Left("Sass notes", {"_notes.txt": "a", "b.txt": "b"}, {"": ["a", "b"], "*.txt": ["a", "b"]}),
    Left("Sphinx", {"_x/a.html": "a", "b.html": "b"}, {"": ["a", "b"], "**": ["a", "b"]}, "file"),
    Left(
        "datasets, save_to_disk and map",
        SAVED,
        {"": ["a"], "*": ["a"], "**/*.arrow": ["a"], "*.arrow": ["a"]},
    ),
    Left("datasets, the cache by its name", SAVED, {"cache-48e116202455ac69.arrow": ["A"]}),
    Left(
        "datasets, a DatasetDict",
        SPLITS,
        {"": ["a", "b", "c"], "**/*.arrow": ["a", "b", "c"], "*": ["a", "b", "c"], "test": ["a"]},
    ),
    Left(
        "datasets, the cache of load_dataset",
        {"csv-train.arrow": "a", "cache-48e116202455ac69.arrow": "A", "dataset_info.json": b"{}"},
        {"": ["a"], "*.arrow": ["a"]},
    ),
    Left(
        "another tool with a state.json",
        {"a.arrow": "a", "b.arrow": "b", "state.json": b'{"step": 3}'},
        {"*.arrow": ["a", "b"]},
    ),
    Left(
        "sentence-beam",
        STORE,
        {"docs": ["a"], "docs/**/*.parquet": ["a"], "docs/*": ["a"], "**": ["a"]},
    ),
    Left(
        "sentence-beam, before the first commit",
        {**{k: v for k, v in STORE.items() if "manifest" not in k}, "docs/store/lease.json": b"{}"},
        {"docs": ["a"], "docs/**": ["a"]},
    ),
    Left(
        "a user with embeddings of their own",
        {"a.parquet": "a", "embeddings/b.parquet": "b", "manifest.json": b"{}"},
        {"**/*.parquet": ["a", "b"]},
    ),
]


@pytest.mark.parametrize("left", LEFT, ids=lambda left: left.by)
def test_files_that_other_programs_keep_beside_their_rows_are_not_read(
    left: Left, tmp_path: Path
) -> None:
    put(tmp_path, left.files)
    for pattern, right in left.right.items():
        assert texts(f"{tmp_path}/{pattern}".rstrip("/"), left.file_format) == right, pattern


def left_of(tmp_path: Path, *patterns: str) -> dict[str, int]:
    """The counts of what no pattern takes."""
    globs = frozenset(f"{tmp_path}/{pattern}" for pattern in patterns)
    counted = []
    for glob in sorted(globs):
        found = find_inputs(glob, "auto", False)
        counted.append(Beside.from_paths(found.beside, found.left_out, globs, False))
    return merge_counts(counted).total()


def test_what_is_left_out_is_counted_with_its_reason_unless_another_pattern_takes_it(
    tmp_path: Path,
) -> None:
    put(tmp_path, {**SPARK, **{f"hf/{name}": row for name, row in SAVED.items()}, **STORE})
    assert left_of(tmp_path, "**/*.parquet", "hf/*.arrow") == {
        "of a store": 2,
        "beside a dataset's data": 1,
        "with a leading _": 1,
        ".json": 2,
        "without an ending": 3,
        "hidden": 1,
    }
    assert "with a leading _" not in left_of(tmp_path, "**/*.parquet", "_temporary/**/*.parquet")


@pytest.mark.parametrize(
    ("files", "pattern", "said"),
    [
        ({"_a.csv": "a", "_b/c.csv": "c"}, "", "no file matches but 2 with a leading _"),
        ({"_a.csv": "a"}, "*.csv", "no file matches but 1 with a leading _"),
        (STORE, "docs/store", "no file matches but 4 of a store"),
        (
            {"a.csv": "a", "b.csv": "b", "c.jsonl": "c", "d.md": "d", "e.pdf": "e", "f": "f"},
            "",
            r"several formats: 2 csv \(as .*\), 1 file \(.*\), 1 jsonl \(.*\), 1 \.pdf \(.*\), 1"
            r" without an ending \(.*\); name one kind by a pattern",
        ),
        (
            {"a.xlsx": "a", "b.pdf": "b", "c.pdf": "c"},
            "",
            r": 2 \.pdf \(.*\), 1 \.xlsx \(.*\); say",
        ),
        (
            {"t/.hoodie/hoodie.properties": b"", "t/lang=en/a.parquet": "a"},
            "",
            "/t is a table.*Hudi",
        ),
        ({"t/.hoodie/x": b"", "t/2024/01/a.parquet": "a"}, "**/*.parquet", "/t is a table.*Hudi"),
        ({"t/.hoodie/hoodie.properties": b"", "t/lang=en/a.parquet": "a"}, "t/lang=en", "Hudi"),
        ({"t/2/.hoodie_partition_metadata": b"", "t/2/a.parquet": "a"}, "t/2/*.parquet", "Hudi"),
    ],
    ids=name_of,
)
def test_an_input_without_rows_to_read_ends_with_what_is_there(
    files: Mapping[str, bytes | str], pattern: str, said: str, tmp_path: Path
) -> None:
    put(tmp_path, files)
    with pytest.raises(OptionError, match=said):
        texts(f"{tmp_path}/{pattern}".rstrip("/"))


def test_a_hudi_table_beside_the_files_of_a_pattern_does_not_matter(tmp_path: Path) -> None:
    put(tmp_path, {"a.parquet": "a", "t/.hoodie/hoodie.properties": b"", "t/b.parquet": "b"})
    assert texts(f"{tmp_path}/*.parquet") == ["a"]


@pytest.mark.parametrize(
    "listed",
    [
        state("../data-0.arrow"),
        state("/data-0.arrow"),
        state("sub/data-0.arrow"),
        state("sub\\data-0.arrow"),
        state(".."),
        state("data-0.arrow", "gone.arrow"),
        state("data-0.arrow", _indices_data_files=[{"filename": "indices.arrow"}]),
        json.dumps({"_data_files": [{"filename": "data-0.arrow", "skip": 1, "take": 2}]}).encode(),
        json.dumps({"_data_files": "data-0.arrow"}).encode(),
        json.dumps({"_data_files": [["data-0.arrow"]]}).encode(),
        b'{"_data_files": [',
        b"[" * 100_000,
    ],
    ids=name_of,
)
def test_a_saved_dataset_of_which_not_all_rows_can_be_told_ends_by_name(
    listed: bytes, tmp_path: Path
) -> None:
    put(tmp_path, {**SAVED, "state.json": listed})
    (tmp_path / "sub").mkdir()
    for pattern in (tmp_path, f"{tmp_path}/*.arrow"):
        with pytest.raises(SentenceBeamError, match=r"state\.json|gone\.arrow") as raised:
            texts(pattern)
        assert "\n" not in str(raised.value)


def in_zip(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", data)
    return packed.getvalue()


def in_tar(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def many(pack: Any) -> bytes:
    return bytes(pack(ROW * 1000))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.txt", POINTER, "pointer of Git LFS"),
        ("a.md", POINTER, "pointer of Git LFS"),
        ("a.csv", POINTER, "pointer of Git LFS"),
        ("a.tsv", POINTER.replace(b"\n", b"\r\n"), "pointer of Git LFS"),
        ("a.json", POINTER, "pointer of Git LFS"),
        ("a.jsonl.gz", POINTER, "pointer of Git LFS"),
        ("a.csv.zst", POINTER, "pointer of Git LFS"),
        ("a.parquet", POINTER, "pointer of Git LFS"),
        ("a.arrow", POINTER, "pointer of Git LFS"),
        ("a.avro", POINTER, "pointer of Git LFS"),
        ("a.orc", POINTER, "pointer of Git LFS"),
        ("a.csv", many(gzip.compress), "is a gzip file.*rename it to a.csv.gz"),
        ("a.txt", many(bz2.compress), "is a bzip2 file.*rename it to a.txt.bz2"),
        ("a.md", many(lzma.compress), "is a xz file.*rename it to a.md.xz"),
        ("a.jsonl", many(zstandard.compress), "is a zstd file.*rename it to a.jsonl.zst"),
        ("a.json", many(in_zip), "is a zip file; unpack it"),
        ("a.csv", many(in_tar), "is a tar file; unpack it"),
        ("a.csv.gz", many(in_zip), r"is a zip file, not \.gz as its name says"),
        ("a.csv.gz", many(zstandard.compress), r"is a zstd file, not \.gz as its name says"),
        ("a.parquet", many(gzip.compress), "is a gzip file, and parquet is read only .* unpack it"),
        ("a.avro.gz", many(gzip.compress), "is a gzip file, and avro is read only"),
        ("a.arrow", many(in_zip), "is a zip file, and arrow is read only"),
        ("a.csv.gz", gzip.compress(many(gzip.compress)), r"holds a gzip file inside the \.gz"),
        ("a.txt.GZ", gzip.compress(many(in_tar)), r"holds a tar file inside the \.gz"),
        ("a.json.xz", lzma.compress(many(bz2.compress)), r"holds a bzip2 file inside the \.xz"),
    ],
    ids=name_of,
)
def test_bytes_that_the_name_does_not_say_end_the_run_by_name(
    name: str, data: bytes, said: str, tmp_path: Path
) -> None:
    put(tmp_path, {name: data})
    with pytest.raises(SentenceBeamError, match=rf"{name} .*{said}") as raised:
        texts(tmp_path / name)
    assert raised.value.exit_code == 1  # a bad file, which --max-bad-files may leave out
    if not name.endswith((".txt", ".md", ".GZ")):
        with pytest.raises(SentenceBeamError, match=said):
            read_header(list_files([str(tmp_path / name)], "auto")[0])


@pytest.mark.parametrize(
    ("name", "data", "right"),
    [
        ("A.TXT", b"row\n", ["row"]),
        ("A.TXT.GZ", gzip.compress(b"row\n"), ["row"]),
        ("a.JSONL.Zst", zstandard.compress(ROW), ["row"]),
        ("A.CSV.BZ2", bz2.compress(b"text\nrow\n"), ["row"]),
        ("README.MD.XZ", lzma.compress(b"row"), ["row"]),
        # texts about the same things
        (
            "lfs.md",
            b"A pointer begins with: " + POINTER,
            ["A pointer begins with: " + POINTER.decode()],
        ),
        ("pk.txt", b"PK is no zip\nBZh is no bzip2\n", ["PK is no zip", "BZh is no bzip2"]),
        (
            "long.txt",
            POINTER.splitlines()[0] + b" x" * 600,
            [POINTER.decode().splitlines()[0] + " x" * 600],
        ),
    ],
    ids=name_of,
)
def test_endings_in_capitals_and_texts_that_only_look_alike_are_read(
    name: str, data: bytes, right: list[str], tmp_path: Path
) -> None:
    put(tmp_path, {name: data})
    assert texts(tmp_path / name) == right
    assert texts(tmp_path) == right
