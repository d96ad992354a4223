"""Buckets: which rows they hold, how they are named, chosen and split, and that no layout of the
input shows in them.

Covers transforms/corpus/blocks.py.
Covers transforms/corpus/heavy.py.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.corpora import sentences
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.corpus import InputFile, Rejected, Span, UnitRows
from sentence_beam.transforms.corpus import blocks as blocks_module
from sentence_beam.transforms.corpus import heavy as heavy_module
from sentence_beam.transforms.corpus.blocks import Packer, make_bucket_unit, slice_group, unpack
from sentence_beam.transforms.corpus.buckets import (
    GROUP_BYTES,
    Bucket,
    Buckets,
    find_buckets,
    find_piece,
    parse_name,
)
from sentence_beam.transforms.corpus.heavy import cut, drop_heavy
from sentence_beam.transforms.space import row_hash
from sentence_beam.transforms.steps.plan.content_plan import divide_reads
from sentence_beam.transforms.store.ledger import check_bucket_rows, check_buckets
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.table_columns import MADE, list_values, make_table


def made_of(units: list[UnitRecord]) -> pa.Table:
    """Units as the ledger checks them."""
    return make_table(map(list_values, units), MADE)


ROW = st.fixed_dictionaries(
    {
        "id": st.one_of(
            st.sampled_from(["a", "b", "ä", ""]), st.text(st.characters(codec="utf-8"), max_size=6)
        ),
        "text": st.one_of(
            st.sampled_from(["N/A", "dog", "a cat"]), st.text(min_size=1, max_size=12).map(repr)
        ),
        "kept": st.one_of(st.none(), st.integers(0, 3)),
        "bad": st.booleans(),
    }
)


def unit_of(rows: list[dict[str, Any]], file: str) -> UnitRows:
    """Rows as they are read from a file."""
    good = [(i, row) for i, row in enumerate(rows) if not row["bad"]]
    return UnitRows(
        name="x",
        file=InputFile("/" + file, file, "text", "", 1, "sum", "v"),
        start=0,
        stop=len(rows),
        ids=[row["id"] for _, row in good],
        texts=[row["text"] for _, row in good],
        positions=[i for i, _ in good],
        kept=pa.table({"n": pa.array([row["kept"] for _, row in good], pa.int64())}),
        rejects=[
            Rejected(r["id"] or None, i, "null text", "", file)
            for i, r in enumerate(rows)
            if r["bad"]
        ],
    )


def packed(
    parts: list[list[dict[str, Any]]], buckets: Buckets, flushes: int
) -> dict[int, list[bytes]]:
    """Blocks by group, of files that hold these rows."""
    blocks: dict[int, list[bytes]] = {}
    packer = Packer(buckets)
    for number, rows in enumerate(parts):
        packer.add(unit_of(rows, f"{number}.txt"))
        if number % flushes == 0 or number == len(parts) - 1:
            for group, block in packer.flush():
                assert sum(block.counts) > 0
                blocks.setdefault(group, []).append(block.data)
    return blocks


def units(blocks: dict[int, list[bytes]], buckets: Buckets) -> dict[str, UnitRows]:
    """All units by name."""
    return {
        buckets.name(bucket): make_bucket_unit(buckets.name(bucket), bucket, table)
        for group in range(buckets.groups)
        for bucket, table in slice_group(blocks.get(group, []), buckets, group)
    }


def content(unit: UnitRows) -> tuple[Any, ...]:
    """What decides a unit's shard, and no more."""
    kept = unit.kept.to_pylist() if unit.kept is not None else []
    return unit.ids, unit.texts, kept, Counter((r.id, r.reason, r.excerpt) for r in unit.rejects)


def all_rows(units: Iterable[UnitRows]) -> Counter[Any]:
    """What all units hold, in any order."""
    found: Counter[Any] = Counter()
    for unit in units:
        ids, texts, kept, rejects = content(unit)
        found.update(zip(ids, texts, map(repr, kept), strict=True))
        found.update(rejects)
    return found


@given(
    st.lists(ROW, max_size=30),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
@settings(max_examples=examples(60), deadline=None)
def test_every_row_is_in_its_bucket_once_and_no_layout_shows(
    rows: list[dict[str, Any]], bits: int, random: Any, flushes: int
) -> None:
    buckets = Buckets(bits, len(rows), len(rows), 0)
    one = units(packed([rows], buckets, 1), buckets)
    shuffled = random.sample(rows, len(rows))
    cuts = sorted(random.randint(0, len(rows)) for _ in range(3))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    two = units(packed(parts, buckets, flushes), buckets)
    assert {name: content(unit) for name, unit in one.items()} == {
        name: content(unit) for name, unit in two.items()
    }

    assert len(one) == buckets.count
    assert list(one) == sorted(one)
    found = [(unit, i) for unit in one.values() for i in range(len(unit.ids))]
    expected = Counter((row["id"], row["text"], row["kept"]) for row in rows if not row["bad"])
    assert (
        Counter(
            (u.ids[i], u.texts[i], u.kept["n"][i].as_py()) for u, i in found if u.kept is not None
        )
        == expected
    )
    assert sum(len(unit.rejects) for unit in one.values()) == sum(row["bad"] for row in rows)
    for unit in one.values():
        hashes = [row_hash(text) for text in unit.texts]
        keys = list(zip(hashes, [i.encode() for i in unit.ids], strict=True))
        assert keys == sorted(keys)
        assert (unit.file, unit.stop) == (None, unit.start + 1)
        assert all(int.from_bytes(h, "big") >> (128 - bits) == unit.start for h in hashes)


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_rows_that_waited_on_disk_make_the_same_units(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    made = [
        {"id": f"{i}", "text": f"text {i % 500}", "kept": i, "bad": i % 50 == 3}
        for i in range(rows)
    ]
    parts, wanted = (
        [made[start : start + 70] for start in range(0, rows, 70)],
        Buckets(10, max(rows, 1), max(rows, 1), 1),
    )
    plain = units(packed(parts, wanted, 2), wanted)
    monkeypatch.setattr(blocks_module, "HELD_BYTES", 0)
    monkeypatch.setattr(blocks_module, "BUCKETS_PER_GROUP", 2)  # of the eight in a group
    blocks: dict[int, list[bytes]] = {}
    packer = Packer(wanted)
    for number, some in enumerate(parts):
        packer.add(unit_of(some, f"{number}.txt"))
        assert list(packer.relieve()) == []
    for group, block in packer.flush():
        blocks.setdefault(group, []).append(block.data)
    assert all(len(found) == 1 for found in blocks.values())
    assert {name: content(unit) for name, unit in units(blocks, wanted).items()} == {
        name: content(unit) for name, unit in plain.items()
    }


@pytest.mark.parametrize(("words", "frequent"), [(12, 0.0), (12, 0.9), (60, 0.0)])
def test_what_travels_is_not_much_more_than_the_text(
    monkeypatch: pytest.MonkeyPatch, words: int, frequent: float
) -> None:
    """Blocks of the rows that a large corpus has in each, all of which waited on disk.

    Short sentences of 57 bytes and texts of 300, and a corpus of which nine rows in ten have one
    text.
    """
    monkeypatch.setattr(blocks_module, "HELD_BYTES", 100_000)
    buckets, dice = Buckets(3, 3072, 3072, 3072 * 100), np.random.default_rng(0)
    known = np.array([f"w{n:x}" for n in dice.integers(0, 4000, 5000)])
    texts = [" ".join(dice.choice(known, words)) for _ in range(3072)]
    texts = [texts[0] if dice.random() < frequent else text for text in texts]
    rows = [
        {"id": f"row-{n}", "text": text, "kept": n, "bad": False} for n, text in enumerate(texts)
    ]
    packer = Packer(buckets)
    for start in range(0, 3072, 256):
        packer.add(unit_of(rows[start : start + 256], "2026/11/part.parquet"))
        assert list(packer.relieve()) == []
    assert packer.spill is not None
    blocks = [block for _, block in packer.flush()]
    assert len(blocks) == buckets.groups == 8  # 384 rows each on average
    assert frequent or min(sum(block.counts) for block in blocks) >= 256
    assert sum(len(block.data) for block in blocks) <= 1.3 * sum(map(len, texts))


@pytest.mark.parametrize("size", [10**6, 10**9, 10**10, 4 * 10**11, 10**13])
@pytest.mark.parametrize("row_bytes", [40, 420, 1000])
def test_a_block_has_256_rows_whatever_the_corpus(size: int, row_bytes: int) -> None:
    """By the numbers of the plan; the text is in units of 1 MB or so, as the spans are that are
    read.
    """
    rows = size // row_bytes
    buckets = Buckets.choose(rows, rows * (row_bytes // 4 + 2), 262_144)
    assert buckets.rows * buckets.row_bytes / buckets.groups <= 1.1 * GROUP_BYTES
    file, cut = InputFile("/in/a", "a", "parquet", "", size, "", ""), -(-size // 1000)
    per = -(-cut // row_bytes)
    spans = [
        Span(file, n, 0, per, tokens=per * (row_bytes // 4 + 2), rows=per) for n in range(1000)
    ]
    works = list(divide_reads(spans, buckets, 100))
    read = [sum(span.rows or 0 for span in work.spans) for work in works]
    assert all(n >= 256 * buckets.groups for n in read[:-1])
    assert size < 10**11 or len(works) >= 32  # enough to spread


def test_rejected_rows_without_a_text_are_spread() -> None:
    rows = [{"id": str(i), "text": "", "kept": None, "bad": True} for i in range(2000)]
    buckets = Buckets(4, 2000, 2000, 1)
    found = units(packed([rows], buckets, 1), buckets)
    assert len(found) == 16
    assert max(len(unit.rejects) for unit in found.values()) < 2 * 2000 / 16


def test_a_row_keeps_its_place_in_the_input() -> None:
    buckets = Buckets(0, 3, 3, 0)
    rows = [{"id": str(i), "text": f"t{i}", "kept": None, "bad": i == 1} for i in range(3)]
    (unit,) = units(packed([rows, rows], buckets, 1), buckets).values()
    places = {(unit.texts[i], unit.find_file(i), unit.positions[i]) for i in range(len(unit.ids))}
    assert places == {(f"t{i}", f"{file}.txt", i) for i in (0, 2) for file in (0, 1)}
    assert {(r.file, r.row) for r in unit.rejects} == {("0.txt", 1), ("1.txt", 1)}


@pytest.mark.parametrize("held", [0, 600, heavy_module.HELD_BYTES])
@given(st.integers(1, 6), st.lists(ROW, min_size=1, max_size=20), st.integers(1, 5))
@settings(max_examples=examples(15), deadline=None)
def test_pieces_of_heavy_buckets_and_the_rest_are_all_rows(
    held: int, power: int, rows: list[dict[str, Any]], files: int
) -> None:
    buckets, read = Buckets(1, len(rows), len(rows), 0), [rows[n::files] for n in range(files)]
    whole = units(packed(read, buckets, 1), buckets)
    heavy = {0: 4, 1: 1 << power}
    blocks = [data for found in packed(read, buckets, 1).values() for data in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heavy_module, "HELD_BYTES", held)
        parts = list(cut(blocks, buckets, heavy))
    assert len({(bucket, k) for bucket, k, _ in parts}) == len(parts)
    made = [(bucket, k, make_bucket_unit("x", bucket, unpack([data]))) for bucket, k, data in parts]
    assert all(find_piece(i, heavy[bucket]) == k for bucket, k, unit in made for i in unit.ids)
    for bucket in heavy:
        assert all_rows(unit for b, _, unit in made if b == bucket) == all_rows(
            [whole[buckets.name(bucket)]]
        )
    light = [drop_heavy(data, buckets, [1]) for data in blocks]
    assert next(
        content(make_bucket_unit("x", b, t)) for b, t in slice_group(light, buckets, 0)
    ) == content(whole["1-0"])


@pytest.mark.parametrize("held", [100_000, heavy_module.HELD_BYTES])
def test_a_piece_of_a_heavy_bucket_gets_its_rows_in_one_block(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Two thirds of the rows have one text, and each of 32 that read has few rows for each of eight
    pieces.
    """
    monkeypatch.setattr(heavy_module, "HELD_BYTES", held)
    texts, buckets = sentences(4096), Buckets(3, 12_288, 12_288, 12_288 * 60)
    rows = [
        {
            "id": f"row-{n}",
            "text": texts[n // 3] if n % 3 == 0 else " ".join(texts[:8]),
            "kept": n,
            "bad": False,
        }
        for n in range(12_288)
    ]
    read = [rows[n::32] for n in range(32)]
    number = int(
        find_buckets(np.frombuffer(row_hash(rows[1]["text"]), np.uint8).reshape(1, 16), 3)[0]
    )
    blocks = packed(read, buckets, 1)[number // buckets.per_group]
    made = list(cut(blocks, buckets, {number: buckets.pieces(2 * 12_288 / 3 + 500)}))
    assert len(made) == 8
    found = [make_bucket_unit("x", bucket, unpack([data])) for bucket, _, data in made]
    assert min(unit.read for unit in found) >= 256
    assert sum(len(data) for *_, data in made) <= 1.3 * sum(
        len(text) for unit in found for text in unit.texts
    )


def test_one_text_is_packed_once_however_many_rows_share_it() -> None:
    text = "x" * 100_000
    rows = [{"id": str(i), "text": text, "kept": 0, "bad": False} for i in range(500)]
    ((block,),) = packed([rows], Buckets(0, 1, 1, 0), 1).values()
    assert len(block) < 50_000  # and lz4 makes little of a text that is one letter
    (unit,) = units({0: [block]}, Buckets(0, 1, 1, 0)).values()
    assert len({id(t) for t in unit.texts}) == 1


@given(st.integers(0, 20), st.data())
@settings(max_examples=examples(50), deadline=None)
def test_names_say_which_bucket_and_overlap_by_their_first_bits(bits: int, data: Any) -> None:
    buckets, bucket = Buckets(bits, 1, 1, 1), data.draw(st.integers(0, (1 << bits) - 1))
    assert parse_name(buckets.name(bucket)) == Bucket(bits, bucket)
    assert parse_name(buckets.name(bucket) + ".12") == Bucket(bits, bucket, 12)
    more = data.draw(st.integers(bits, 24))
    hashes = np.frombuffer(data.draw(st.binary(min_size=16, max_size=16)), np.uint8).reshape(1, 16)
    one, other = (int(find_buckets(hashes, n)[0]) for n in (bits, more))
    assert list(Bucket(more, other).at(bits)) == [one]
    assert (other in Bucket(bits, bucket).at(more)) == (bucket == one)


@pytest.mark.parametrize(
    "name", ["0123456789abcdef-000000000000", "1234567890123456-000000000000.3", "3", "3-", "-3"]
)
def test_units_of_files_are_no_buckets(name: str) -> None:
    assert parse_name(name) is None


@given(st.integers(0, 10**6), st.integers(0, 10**8), st.integers(1, 10**6), st.integers(0, 10**7))
@settings(max_examples=examples(200), deadline=None)
def test_buckets_are_of_a_units_size_and_kept_until_the_rows_have_doubled(
    rows: int, tokens: int, unit_tokens: int, later: int
) -> None:
    first = Buckets.choose(rows, tokens, unit_tokens)
    assert first.count * unit_tokens >= tokens
    assert first.bits == 0 or first.count * unit_tokens < 2 * tokens
    assert first.per_group * first.groups == first.count
    second = first.for_rows(later, tokens * 3, unit_tokens)
    assert second.rows == later
    assert second.bits >= first.bits
    if later <= 2 * rows:
        assert second == replace(first, rows=later)


def test_growth_splits_and_shrinking_does_not_join() -> None:
    first = Buckets.choose(1000, 16_000, 1000)
    assert first.bits == 4
    assert first.for_rows(10, 160, 1000).bits == 4
    assert first.for_rows(2000, 32_000, 1000).bits == 4
    grown = first.for_rows(2001, 32_016, 1000)
    assert grown.bits == 6
    assert grown.for_rows(2001, 32_016, 1000) == grown
    assert first.for_rows(2001, 100, 1000).bits == 4


@pytest.mark.parametrize(
    ("rows", "pieces"), [(100, 1), (400, 1), (401, 8), (800, 8), (801, 16), (10**6, 16384)]
)
def test_a_heavy_bucket_is_cut_to_about_the_planned_rows(rows: int, pieces: int) -> None:
    assert Buckets(3, 800, 800, 1).pieces(rows) == pieces


# --- the ledger of buckets


def record(name: str, rows: int = 2) -> UnitRecord:
    return UnitRecord(
        f"{name}.parquet",
        name,
        "",
        (0, 1),
        rows,
        rows,
        0,
        None,
        1,
        0,
        0,
        1,
        "ab" * 32,
        embedded=rows,
    )


WHOLE = [record("2-0"), record("2-1"), record("2-2"), record("2-3")]
CUT = [record("2-0"), record("2-1.0"), record("2-1.1", 0), record("2-2"), record("2-3")]


def test_all_buckets_once_are_a_plan_fulfilled() -> None:
    check_buckets(Buckets(2, 8, 1, 1), range(4), made_of(WHOLE))
    check_buckets(Buckets(2, 8, 1, 1), range(4), made_of(CUT))
    check_buckets(Buckets(2, 8, 1, 1), range(1, 3), made_of(CUT[1:4]))
    check_buckets(Buckets(0, 2, 1, 1), range(1), made_of([record("0-0")]))
    check_bucket_rows(Buckets(2, 8, 1, 1), 8)


@pytest.mark.parametrize(
    ("units", "said"),
    [
        (WHOLE[1:], "2-0 was not finished"),
        ([*WHOLE, record("2-4")], "2-4 was never planned"),
        ([*WHOLE[:3], record("3-3")], "3-3 was never planned"),
        ([*WHOLE, record("0123456789abcdef-000000000000")], "never planned"),
        ([*WHOLE, record("2-1.0", 0)], "2-1 was not finished"),
        ([*CUT[:2], *CUT[3:]], "2-1 was not finished"),
        ([*CUT, record("2-1.2", 0)], "2-1 was not finished"),
    ],
)
def test_a_bucket_that_is_missing_or_doubled_is_a_fault(units: list[UnitRecord], said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        check_buckets(Buckets(2, 8, 1, 1), range(4), made_of(units))


@pytest.mark.parametrize("read", [7, 9])
def test_rows_that_are_missing_or_too_many_are_a_fault(read: int) -> None:
    with pytest.raises(LedgerError, match=f"{read} rows read of 8 planned"):
        check_bucket_rows(Buckets(2, 8, 1, 1), read)
