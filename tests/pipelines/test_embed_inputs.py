"""Inputs as people have them: absent, empty, broken, doubled, oddly named. One line says which and
what to do.
"""

import errno
import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import fake_storage
from helpers.commands import Run
from helpers.corpora import (
    COMPRESSORS,
    check_ledger,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    write_bytes,
    write_lines,
    write_parquet,
)
from helpers.snapshots import files_of, units_of

from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.options import EmbedOptions


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    """Both."""
    return request.param


# --- nothing to read


@pytest.mark.parametrize("pattern", ["*.parquet", "absent.txt", "absent/*.txt"])
def test_nothing_matches(embed: Run, inputs: Path, store: Path, pattern: str) -> None:
    embed(inputs / pattern).failed(2, f"--input {inputs / pattern}: no file matches")
    assert manifest_of(store) is None


def test_a_folder_stands_for_its_files_of_one_format(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    for name in ("a.txt", "below/b.txt.gz", "_temporary/c.txt", ".hidden.txt"):
        write_lines(inputs / name, sentences(3))
    write_bytes(inputs / "_SUCCESS", b"")
    write_bytes(inputs / "read.me", b"")
    said = embed(f"{inputs}/").ok().out
    assert "2 taken" in said
    assert "3 without an ending" not in said
    assert {file["path"] for file in files_of(store, check_ledger(store, 6))} == {
        "a.txt",
        "below/b.txt.gz",
    }
    assert "1 with a leading _" in embed(inputs / "**" / "*.txt*").ok().out
    check_ledger(store, 6, carried=6)
    write_bytes(inputs / "c.csv", b"text\nx\n")
    embed(inputs).failed(2, inputs, "1 csv", "2 text", f"'{inputs}/**/*.csv'")
    embed(inputs, "--format", "csv", "--max-deletes", 1).ok()
    check_ledger(store, 1)
    run("embed", "--input", inputs, "--store", inputs / "x" / "store").failed(
        2, "takes in the store"
    )


def test_a_folder_of_unknown_files(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "part-0", sentences(3))
    embed(inputs).failed(2, inputs, "known format", inputs / "part-0", "--format")
    embed(inputs, "--format", "text").ok()
    check_ledger(store, 3)


def test_several_names_after_one_input(run: Run, inputs: Path, store: Path, model: Path) -> None:
    names = [write_lines(inputs / f"{name}.txt", sentences(2)) for name in "abc"]
    run(
        "embed", "--input", *names[:2], "--store", store, "--model", model, "--input", names[2]
    ).ok()
    check_ledger(store, 6)


def test_standard_input(
    run: Run, embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(text: str) -> None:
        monkeypatch.setattr(
            "sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf8")
        )

    write_lines(inputs / "a.txt", ["three"])
    typed("one\ntäxt\n")
    embed(["-", inputs / "a.txt"], "--keep-columns", "text").ok()
    check_ledger(store, 3)
    assert {row["id"]: row["text"] for row in rows_of(store)} == {
        "stdin.txt@0": "one",
        "stdin.txt@4": "täxt",
        "a.txt@0": "three",
    }
    typed("one\ntäxt\n")
    embed(["-", inputs / "a.txt"]).ok()
    check_ledger(store, 3, carried=3)
    typed('{"text": "one"}\n')
    embed("-", "--format", "jsonl", "--max-deletes", 1).ok()
    check_ledger(store, 1)


def test_standard_input_is_not_for_workers_elsewhere() -> None:
    asked = EmbedOptions(input=("-",), store="store")
    with (
        pytest.raises(OptionError, match="--input - is read in this process alone"),
        with_stdin(asked, local=False),
    ):
        pass


def test_an_empty_folder_is_named_as_such(embed: Run, inputs: Path) -> None:
    embed(inputs).failed(2, inputs, "no file matches")


def test_one_pattern_of_two_without_a_match_stops_the_run(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(3))
    embed([inputs / "a.txt", inputs / "b.txt"]).failed(2, inputs / "b.txt", "no file matches")
    assert manifest_of(store) is None


def test_a_name_without_a_known_ending_needs_a_format(
    embed: Run, inputs: Path, store: Path
) -> None:
    path = write_lines(inputs / "a.dat", sentences(3))
    embed(path).failed(2, path, "--format")
    embed(path, "--format", "text").ok()
    check_ledger(store, 3)


def test_empty_files_are_files_without_rows(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "full.txt", sentences(3))
    names = ["a.txt", "a.jsonl", "a.txt.gz", "a.txt.zst", "a.jsonl.bz2", "a.txt.xz"]
    for name in names:
        write_bytes(inputs / name, b"")
    (inputs / "no bytes.gz.txt.gz").touch()
    embed(inputs / "*").ok()
    manifest = check_ledger(store, 3)
    assert [file["path"] for file in files_of(store, manifest)] == sorted(
        [*names, "full.txt", "no bytes.gz.txt.gz"]
    )


def test_a_corpus_of_no_bytes_at_all(embed: Run, inputs: Path, store: Path) -> None:
    (inputs / "a.txt").touch()
    embed(inputs / "a.txt").ok()
    check_ledger(store, 0)


def test_parquet_of_no_bytes_is_not_parquet(embed: Run, inputs: Path, store: Path) -> None:
    (inputs / "a.parquet").touch()
    embed(inputs / "a.parquet").failed(1, inputs / "a.parquet", "replace it")
    assert manifest_of(store) is None


# --- Parquet


def test_parquet_without_the_column_lists_those_it_has(
    embed: Run, inputs: Path, store: Path
) -> None:
    path = inputs / "a.parquet"
    pq.write_table(pa.table({"sentence": ["x"], "n": [1]}), path)
    embed(path).failed(2, path, "column text", "--text-column", "sentence 'x', n 1")
    embed(path, "--text-column", "sentence").ok()
    check_ledger(store, 1)


@pytest.mark.parametrize("option", ["--id-column", "--keep-columns"])
def test_parquet_without_another_named_column(embed: Run, inputs: Path, option: str) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(3))
    embed(path, option, "n").failed(2, path, "no column n", option)


def test_a_text_column_of_another_type(embed: Run, inputs: Path, store: Path) -> None:
    path = write_parquet(inputs / "a.parquet", pa.array([1, 2]))
    embed(path).failed(2, path, "column text is int64", "--text-column")
    assert manifest_of(store) is None


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["x y", None, "z"], pa.large_string()),
        pa.array(["x y", None, "z"]).dictionary_encode(),
        pa.array(["x y", None, "z"], pa.large_string()).dictionary_encode(),
        pa.array(["x y", None, "z"], pa.string_view()),
    ],
    ids=["large_string", "dictionary", "dictionary of large_string", "string_view"],
)
def test_text_in_every_string_type(embed: Run, inputs: Path, store: Path, values: pa.Array) -> None:
    path = write_parquet(inputs / "a.parquet", values)
    embed(path, "--max-rejects", 1, "--keep-columns", "text").ok()
    check_ledger(store, 2, 1)
    assert sorted(ids_of(store)) == ["a.parquet#0", "a.parquet#2"]


def test_parquet_without_a_row(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", [])
    embed(inputs / "a.parquet").ok()
    check_ledger(store, 0)


def test_row_groups_without_a_row(embed: Run, inputs: Path, store: Path) -> None:
    full, empty = pa.table({"text": sentences(3)}), pa.table({"text": pa.array([], pa.string())})
    with pq.ParquetWriter(inputs / "a.parquet", full.schema) as writer:
        for table in (empty, full, empty, full, empty):
            writer.write_table(table)
    embed(inputs / "a.parquet", "--unit-tokens", 10).ok()
    check_ledger(store, 6)
    assert sorted(ids_of(store)) == [f"a.parquet#{i}" for i in range(6)]


def test_a_row_group_larger_than_a_unit_makes_several_shards(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", sentences(100))
    embed(inputs / "a.parquet", "--unit-tokens", 100).ok()
    assert len(units_of(store, check_ledger(store, 100))) > 3
    assert sorted(ids_of(store)) == sorted(f"a.parquet#{i}" for i in range(100))


@pytest.mark.parametrize("keep", [4, 50, -1, -9])
def test_truncated_parquet(embed: Run, inputs: Path, store: Path, keep: int) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(50))
    path.write_bytes(path.read_bytes()[:keep])
    embed(path).failed(1, path, "not a readable Parquet file", "replace it")
    assert manifest_of(store) is None


def test_text_that_calls_itself_parquet(embed: Run, inputs: Path) -> None:
    path = write_bytes(inputs / "a.parquet", b"not parquet at all\n" * 20)
    embed(path).failed(1, path, "not a readable Parquet file")


def test_a_line_break_in_a_name_breaks_no_error(embed: Run, run: Run, inputs: Path) -> None:
    path = write_bytes(inputs / "a\nb.parquet", b"not parquet at all\n" * 20)
    said = (r"a\nb.parquet is not a readable Parquet file", "leave it out")
    embed(path).failed(1, *said)
    run("plan", "--input", path).failed(1, *said)


def test_parquet_with_a_damaged_page_stops_the_run(embed: Run, inputs: Path, store: Path) -> None:
    path = inputs / "a.parquet"
    pq.write_table(
        pa.table({"text": sentences(2000)}), path, compression="zstd", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    embed(path).failed(1, path, "replace")
    assert manifest_of(store) is None


# --- text


def test_truncated_compressed_text(embed: Run, inputs: Path, store: Path) -> None:
    path = write_lines(inputs / "a.txt.gz", sentences(300))
    path.write_bytes(path.read_bytes()[:-1])
    embed(path).failed(1, path, "cut short or corrupt", "replace it")
    assert manifest_of(store) is None


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_text_that_calls_itself_compressed(embed: Run, inputs: Path, suffix: str) -> None:
    path = inputs / f"a.txt{suffix}"
    path.write_text("plain\n" * 10)
    embed(path).failed(1, path, "replace it")


def test_compressed_text_in_several_members(embed: Run, inputs: Path, store: Path) -> None:
    lines = sentences(20)
    parts = ["".join(f"{line}\n" for line in lines[i : i + 10]).encode() for i in (0, 10)]
    for suffix, compress in COMPRESSORS.items():
        (inputs / f"a.txt{suffix}").write_bytes(compress(parts[0]) + compress(parts[1]))
    embed(inputs / "*", "--keep-columns", "text").ok()
    check_ledger(store, 20 * len(COMPRESSORS))
    assert sorted(row["text"] for row in rows_of(store)) == sorted(lines * len(COMPRESSORS))


# --- names


def test_two_inputs_that_give_one_relative_path(embed: Run, inputs: Path, store: Path) -> None:
    one, two = write_lines(inputs / "x/a.txt", ["one"]), write_lines(inputs / "y/a.txt", ["two"])
    embed([one, two]).failed(2, one, two, "relative path a.txt", "--input")
    assert manifest_of(store) is None
    embed(inputs / "*/a.txt").ok()
    assert sorted(ids_of(store)) == ["x/a.txt@0", "y/a.txt@0"]


def test_two_inputs_that_give_one_relative_path_with_ids_of_their_own(
    embed: Run, inputs: Path
) -> None:
    one = write_parquet(inputs / "x/a.parquet", ["one"], id=["1"])
    two = write_parquet(inputs / "y/a.parquet", ["two"], id=["2"])
    embed([one, two], "--id-column", "id").failed(2, one, two)


def test_one_file_named_twice_is_read_once(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(5))
    embed([inputs / "a.txt", inputs / "*.txt", inputs / "a.txt"]).ok()
    check_ledger(store, 5)


ODD = [
    "täxt 文.txt",
    "a b  c.txt",
    "a#1@2.txt",
    "100%.txt",
    'it\'s "quoted".txt',
    "a.b.c.txt",
    "-flag.txt",
    "A.TXT",
    "a\\b.txt",
]


def test_odd_names(embed: Run, inputs: Path, store: Path) -> None:
    for name in ODD:
        write_lines(inputs / "sub folder é" / name, ["one", "two"])
    embed(inputs / "**").ok()
    check_ledger(store, 2 * len(ODD))
    assert sorted(ids_of(store)) == sorted(
        f"sub folder é/{name}@{at}" for name in ODD for at in (0, 4)
    )
    embed(inputs / "**").ok()
    check_ledger(store, 2 * len(ODD), carried=2 * len(ODD))


@pytest.mark.parametrize("pattern", ["a[1].txt", "a*.txt"])
def test_a_name_that_looks_like_a_pattern(
    embed: Run, inputs: Path, store: Path, pattern: str
) -> None:
    write_lines(inputs / "a[1].txt", ["one"])
    embed(inputs / pattern).ok()
    check_ledger(store, 1)
    assert ids_of(store) == ["a[1].txt@0"]


def test_a_store_with_an_odd_name(run: Run, inputs: Path, model: Path, tmp_path: Path) -> None:
    write_lines(inputs / "a.txt", sentences(5))
    store = tmp_path / "my store [1]*#é"
    for _ in range(2):
        run(
            "embed", "--input", inputs / "*", "--store", store, "--model", model, "--index", "Flat"
        ).ok()
    check_ledger(store, 5, carried=5)
    run("search", "--store", store, "--query", "dog").ok()
    run("verify", "--store", store).ok()


def test_names_that_are_not_utf8(embed: Run, inputs: Path, store: Path) -> None:
    with open(os.path.join(os.fsencode(inputs), b"caf\xe9.txt"), "wb") as f:
        f.write(b"one\n")
    embed(inputs / "*.txt").failed(2, "caf\\udce9.txt", "UTF-8", "rename")
    assert manifest_of(store) is None


def test_symlinked_inputs(embed: Run, inputs: Path, store: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "elsewhere" / "real.txt", ["one", "two"])
    (inputs / "link.txt").symlink_to(tmp_path / "elsewhere" / "real.txt")
    (inputs / "folder").symlink_to(tmp_path / "elsewhere")
    embed([inputs / "*.txt", inputs / "folder" / "*.txt"]).ok()
    check_ledger(store, 4)


def test_a_symlink_to_nothing_is_no_file(embed: Run, inputs: Path) -> None:
    (inputs / "b.txt").symlink_to(inputs / "gone.txt")
    embed(inputs / "b.txt").failed(2, inputs / "b.txt", "no file matches")


def test_a_symlink_to_nothing_among_others_stops_the_run(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", ["one"])
    (inputs / "b.txt").symlink_to(inputs / "gone.txt")
    embed(inputs / "*").failed(1, inputs / "b.txt", "link to a file that is not there")
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()
    embed(inputs / "a*").ok()


def test_hidden_and_foreign_files_beside_the_input(embed: Run, inputs: Path) -> None:
    write_lines(inputs / "a.txt", ["one"])
    write_bytes(inputs / "_SUCCESS", b"")
    assert "1 with a leading _" in embed(inputs / "*").ok().out
    write_bytes(inputs / "LICENSE", b"")
    embed(inputs / "*").failed(2, inputs / "LICENSE", "--format", "--input")


def test_two_hundred_small_files(embed: Run, inputs: Path, store: Path, partition: str) -> None:
    texts = sentences(400)
    for i in range(200):
        write_lines(inputs / f"{i:03d}.txt", texts[2 * i : 2 * i + 2])
    embed(inputs / "*.txt").ok()
    assert len(units_of(store, check_ledger(store, 400))) == 1


# --- the store and the input in each other's way


@pytest.mark.parametrize(
    "pattern", ["in/**", "in/store/embeddings/*.parquet", "in/s*/*/*", "in/store/*.json"]
)
def test_output_inside_the_input(run: Run, model: Path, inputs: Path, pattern: str) -> None:
    write_lines(inputs / "a.txt", ["one"])
    glob, output = inputs.parent / pattern, inputs / "store"
    if pattern == "in/store/*.json":
        run("embed", "--input", inputs / "*.txt", "--store", output, "--model", model).ok()
    run("embed", "--input", glob, "--store", output, "--model", model).failed(
        2, glob, output, "narrow --input"
    )


def test_output_beside_the_input_under_a_pattern_that_cannot_meet_it(
    run: Run, model: Path, inputs: Path
) -> None:
    write_lines(inputs / "a.txt", ["one"])
    run("embed", "--input", inputs / "*.txt", "--store", inputs / "store", "--model", model).ok()
    run("embed", "--input", inputs / "*.txt", "--store", inputs / "store", "--model", model).ok()


def test_an_input_of_no_permission(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(inputs / "a.txt", ["one"])
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        fake_storage.refuse(monkeypatch, "open", error)
    embed(path).failed(1, path, "Permission denied", "--input")
    assert manifest_of(store) is None
