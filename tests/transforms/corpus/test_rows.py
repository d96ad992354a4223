"""Reading: every row exactly once, whatever the file, the format and the unit size.

Covers transforms/corpus/files.py.
"""

import gzip
import json
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.corpora import PACK
from helpers.examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import (
    Columns,
    UnitRows,
    limit_spans,
    match_inputs,
    plan_file,
    read_span,
)
from sentence_beam.transforms.corpus.files import InputChangedError, check_distinct, find_fixed_part
from sentence_beam.transforms.corpus.find import overlaps
from sentence_beam.transforms.corpus.formats.encoding import find_encoding
from sentence_beam.transforms.corpus.spans import estimate_tokens
from sentence_beam.transforms.store.ledger import get_span_name

# a file with NUL bytes may be UTF-16, which is refused
LINE = st.one_of(
    st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=40).map(str.encode),
    st.binary(max_size=20).map(lambda b: b.translate(None, b"\n\0")),
    st.just(b"x" * 300),
)


def read_all(
    path: Path, columns: Columns | None = None, unit_tokens: int = 50, limit: int | None = None
) -> list[UnitRows]:
    """All units of one file."""
    columns = columns or Columns()
    (file,) = match_inputs(str(path))
    spans = plan_file(file, columns.text, unit_tokens)
    if limit is not None:
        spans = limit_spans(spans, limit)
    return [unit for span in spans for unit in read_span(span, columns, unit_tokens)]


def rows_of(units: list[UnitRows]) -> list[tuple[int, str | None]]:
    """(position, text or None for rejected), in order of position within each unit."""
    found = []
    for unit in units:
        here = [
            *zip(unit.positions, unit.texts, strict=True),
            *((r.row, None) for r in unit.rejects),
        ]
        found += sorted(here, key=lambda pair: pair[0])
    return found


def expected_lines(data: bytes) -> list[tuple[int, str | None]]:
    """What a text file holds, by a plain reading of it."""
    rows, offset = [], 0
    for line in data.split(b"\n"):
        start, offset = offset, offset + len(line) + 1
        if start >= len(data):
            break
        line = line.removeprefix(b"\xef\xbb\xbf") if start == 0 else line
        line = line.removesuffix(b"\r")
        try:
            text: str | None = line.decode()
        except UnicodeDecodeError:
            text = None
        rows.append((start, text if text and text.strip() else None))
    return rows


@settings(max_examples=examples(150), deadline=None)
@given(
    lines=st.lists(LINE, max_size=30),
    ending=st.sampled_from([b"\n", b"\r\n"]),
    final=st.booleans(),
    unit_tokens=st.integers(1, 200),
    suffix=st.sampled_from(list(PACK)),
)
def test_every_line_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ending: bytes,
    final: bool,
    unit_tokens: int,
    suffix: str,
) -> None:
    data = ending.join(lines) + (ending if final and lines else b"")
    assume(find_encoding(data) in ("utf-8", "utf-8-sig"))  # UTF-16 is refused
    path = tmp_path_factory.mktemp("text") / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](data))

    units = read_all(path, unit_tokens=unit_tokens)

    assert rows_of(units) == expected_lines(data)
    if data and not suffix:
        ranges = [(unit.start, unit.stop) for unit in units]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == len(data)
        assert all(a[1] == b[0] for a, b in zip(ranges, ranges[1:], strict=False))
    assert len({unit.name for unit in units}) == len(units)


@settings(max_examples=examples(100), deadline=None)
@given(
    texts=st.lists(
        st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=60)), max_size=60
    ),
    group=st.integers(1, 20),
    unit_tokens=st.integers(1, 300),
    with_id=st.booleans(),
)
def test_every_parquet_row_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str | None],
    group: int,
    unit_tokens: int,
    with_id: bool,
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    table = pa.table(
        {"text": pa.array(texts, pa.string()), "key": pa.array(range(len(texts)), pa.int64())}
    )
    pq.write_table(table, path, row_group_size=group)

    units = read_all(path, Columns("text", "key" if with_id else None, ("key",)), unit_tokens)

    assert rows_of(units) == [(i, t if t and t.strip() else None) for i, t in enumerate(texts)]
    for unit in units:
        names = [str(p) if with_id else f"a.parquet#{p}" for p in unit.positions]
        assert unit.ids == names
        kept = unit.kept.column("key").to_pylist() if unit.kept is not None else []
        assert kept == unit.positions
    assert sum(unit.read for unit in units) == len(texts)


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    unit_tokens=st.integers(20, 400),
    limit=st.integers(0, 45),
    suffix=st.sampled_from(["", ".gz", ".parquet"]),
)
def test_units_are_bounded_and_limited_runs_read_the_first_rows(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    unit_tokens: int,
    limit: int,
    suffix: str,
) -> None:
    texts = [f"{i} " + "x" * size for i, size in enumerate(sizes)]
    folder = tmp_path_factory.mktemp("limit")
    if suffix == ".parquet":
        path = folder / "a.parquet"
        pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
    else:
        path = folder / f"a.txt{suffix}"
        path.write_bytes(PACK[suffix](("\n".join(texts) + "\n").encode()))

    units = read_all(path, unit_tokens=unit_tokens)
    for unit in units:
        if unit.read > 1:
            assert estimate_tokens(sum(len(t) for t in unit.texts), unit.read) <= 1.25 * unit_tokens
    limited = read_all(path, unit_tokens=unit_tokens, limit=limit)
    assert [text for _, text in rows_of(limited)] == texts[:limit]


def test_no_tiny_unit_is_left_at_the_end_of_a_span(tmp_path: Path) -> None:
    texts = ["x" * 96] * 1000
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    row = estimate_tokens(96, 1)

    for unit_rows, expected in (
        (990, [1000]),
        (400, [400, 400, 200]),
        (310, [310, 310, 380]),
        (1100, [1000]),
    ):
        units = read_all(tmp_path / "a.parquet", unit_tokens=unit_rows * row)
        assert [unit.read for unit in units] == expected
        assert [unit.stop for unit in units] == list(accumulate(expected))


def test_unit_names_depend_on_the_relative_path_alone(tmp_path: Path) -> None:
    for folder in ("one", "two/three"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text("alpha\nbeta\n")
    names = [
        [u.name for u in read_all(tmp_path / folder / "a.txt")] for folder in ("one", "two/three")
    ]
    assert names[0] == names[1]
    assert all(get_span_name(name) == name for name in names[0])


def test_units_of_a_span_cut_again_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"".join(b"line %d of a text\n" % i for i in range(40))))
    units = read_all(path, unit_tokens=60)
    assert [u.name.rpartition(".")[2] for u in units] == [str(i) for i in range(len(units))]
    assert len(units) > 3
    assert units[-1].stop is None
    assert {get_span_name(u.name) for u in units} == {units[0].name.removesuffix(".0")}


def test_large_row_group_is_streamed_into_several_units(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"sentence number {i}" for i in range(20_000)]
    pq.write_table(pa.table({"text": texts}), path)
    units = read_all(path, unit_tokens=20_000)
    assert [t for u in units for t in u.texts] == texts
    assert len(units) > 4
    assert max(len(u.texts) for u in units) < 4_000


def test_one_line_larger_than_a_unit_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * 10_000_000 + b"\nlast")
    units = [u for u in read_all(path, unit_tokens=1000) if u.read]
    assert [len(t) for u in units for t in u.texts] == [5, 10_000_000, 4]


def test_jsonl_rows_and_their_faults(tmp_path: Path) -> None:
    rows = [
        {"text": "fine", "id": 7, "n": 1.5, "tags": ["a"]},
        {"text": 3, "id": "b"},
        {"id": "c"},
        {"text": "no id"},
        {"text": "odd id", "id": 1.5},
        {"text": "true id", "id": True},
    ]
    lines = [*map(json.dumps, rows), "{broken", "[1]", "", '{"text": "\\ud800", "id": "s"}']
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    (unit,) = read_all(path, Columns("text", "id", ("n", "tags")), 10_000)
    assert (unit.ids, unit.texts) == (["7"], ["fine"])
    assert unit.kept is not None
    assert unit.kept.to_pylist() == [{"n": "1.5", "tags": '["a"]'}]
    assert [r.reason for r in unit.rejects] == [
        "text is not a string", "null text", "null id", "id is neither string nor integer",
        "id is neither string nor integer", "not a JSON object", "not a JSON object", "empty text", "not UTF-8",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_truncated_compressed_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    data = PACK[suffix](b"".join(b"%d some line\n" % (i * 7919) for i in range(5000)))
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(SentenceBeamError, match="a.txt.*cut short or corrupt"):
        read_all(path)


def test_several_zstd_frames_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(PACK[".zst"](b"one\ntw") + PACK[".zst"](b"o\nthree\n"))
    assert [t for u in read_all(path) for t in u.texts] == ["one", "two", "three"]


def test_a_zstd_frame_of_the_largest_window_is_read(tmp_path: Path) -> None:
    """As `zstd --long=31` writes dumps of forums."""
    parameters = zstandard.ZstdCompressionParameters(window_log=31, write_content_size=False)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "a.txt.zst"
    path.write_bytes(frame.compress(b"one\ntwo\n") + frame.flush())
    assert [t for u in read_all(path) for t in u.texts] == ["one", "two"]


@pytest.mark.parametrize("name", ["a.txt", "a.parquet", "a.txt.gz"])
@pytest.mark.parametrize("change", ["replace", "grow", "remove"])
def test_a_file_that_changes_is_named(tmp_path: Path, name: str, change: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": ["a b", "c d"]}), path)
    else:
        path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](b"a b\nc d\n"))
    (file,) = match_inputs(str(path))
    spans = plan_file(file, "text", 100)
    data = path.read_bytes()
    if change == "remove":
        path.unlink()
    elif change == "grow":
        path.write_bytes(data + data)
    else:
        path.unlink()
        path.write_bytes(data)
    with pytest.raises(InputChangedError, match=name):
        [list(read_span(span, Columns(), 100)) for span in spans]


def test_matching_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt", "c.dat"):
        (tmp_path / name).write_text("x\n")
    assert [f.relative for f in match_inputs(f"{tmp_path}/**.txt")] == ["a.txt", "sub/b.txt"]
    with pytest.raises(OptionError, match="no file matches"):
        match_inputs(f"{tmp_path}/*.parquet")
    assert [f.relative for f in match_inputs(str(tmp_path))] == ["a.txt", "sub/b.txt"]
    with pytest.raises(OptionError, match="say format parquet"):
        match_inputs(f"{tmp_path}/c.dat")
    assert match_inputs(f"{tmp_path}/c.dat", "text")[0].format == "text"


def test_equal_relative_paths_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("x\n")
    files = match_inputs(f"{tmp_path}/one/*.txt") + match_inputs(f"{tmp_path}/two/*.txt")
    with pytest.raises(OptionError, match=r"one/a.txt and .*two/a.txt"):
        check_distinct(files)


@pytest.mark.parametrize(
    ("pattern", "fixed"),
    [
        ("/d/*.parquet", "/d/"),
        ("/d/x-2024*/part?.txt", "/d/"),
        ("/d/e/a.txt", "/d/e/"),
        ("gs://bucket/**", "gs://bucket/"),
        ("gs://bucket/a[0-9]/x", "gs://bucket/"),
    ],
)
def test_fixed_part(pattern: str, fixed: str) -> None:
    assert find_fixed_part(pattern) == fixed


def test_output_inside_the_input_is_seen_before_it_exists(tmp_path: Path) -> None:
    assert overlaps(f"{tmp_path}/**.parquet", f"{tmp_path}/store")
    assert overlaps(f"{tmp_path}/store/embeddings/*.parquet", f"{tmp_path}/store")
    assert overlaps(f"{tmp_path}/s*/*/*", f"{tmp_path}/store")
    assert not overlaps(f"{tmp_path}/*.parquet", f"{tmp_path}/store")
