"""Groups of small files: their names, how many there are, and the units of their rows."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from helpers.corpora import write_lines
from helpers.snapshots import group_name
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus import Columns, Span
from sentence_beam.transforms.corpus.find import find_inputs
from sentence_beam.transforms.corpus.groups import (
    SMALL,
    GroupSpan,
    choose_bits,
    estimate_tokens_by_size,
    parse_bits,
    read_group,
)


@given(st.text(), st.integers(0, 20), st.integers(0, 99))
def test_a_group_is_the_first_bits_of_the_hash_of_a_path(path: str, bits: int, piece: int) -> None:
    name = group_name(path, bits)
    first = hashlib.sha256(path.encode()).digest()[:8]
    assert int(name.partition("-")[2], 16) == int.from_bytes(first) >> (64 - bits)
    assert parse_bits(name) == parse_bits(f"{name}.{piece}") == bits


@pytest.mark.parametrize("other", ["6-0a", "f-0", "f6-", "f6-0g", f"f{'0' * 15}-{0:012d}", ""])
def test_other_units_are_no_groups(other: str) -> None:
    assert parse_bits(other) is None


def test_few_small_files_share_no_units_unless_they_did() -> None:
    assert choose_bits(SMALL - 1, 1500, 1000, None) is None
    assert choose_bits(SMALL, 1600, 1000, None) is not None
    assert choose_bits(1, 100, 1000, 2) == 2


def test_the_number_of_groups_stays_until_they_are_large() -> None:
    bits = [choose_bits(count, 100 * count, 1000, 1) for count in (0, 10, 40, 10_000)]
    assert bits[:3] == [1, 1, 1]
    assert bits[3] is not None
    assert bits[3] > 1


def test_packed_text_may_have_many_more_tokens_than_plain_text_of_its_size() -> None:
    plain, compressed = estimate_tokens_by_size(np.array([6000, 6000]), np.array([True, False]))
    assert 1000 <= plain <= 2000
    assert compressed >= 2 * plain


@pytest.mark.parametrize("unit_tokens", [10, 40, 10_000])
def test_the_units_of_a_group_have_all_rows_of_its_files_in_order(
    tmp_path: Path, unit_tokens: int
) -> None:
    texts = [[f"row {row} of file {n} has some words" for row in range(6)] for n in range(5)]
    for n, some in enumerate(texts):
        write_lines(tmp_path / f"{n}.txt", some)
    files = find_inputs(str(tmp_path / "*"), "auto", False).files
    group = GroupSpan("f0-0", tuple(Span(file, 0, 0, None) for file in files))
    units = list(read_group(group, Columns(), unit_tokens))
    assert [text for unit in units for text in unit.texts] == [
        text for some in texts for text in some
    ]
    assert [name for unit in units for name in unit.files] == [
        f"{n}.txt" for n, some in enumerate(texts) for _ in some
    ]
    bounds = [(unit.start, unit.stop) for unit in units]
    assert (bounds[0][0], bounds[-1][1]) == (0, None)
    assert all(before[1] == after[0] for before, after in zip(bounds, bounds[1:], strict=False))
    assert (len(units) > 1) == (unit_tokens < 10_000)
    assert units[-1].name == ("f0-0" if len(units) == 1 else f"f0-0.{len(units) - 1}")
