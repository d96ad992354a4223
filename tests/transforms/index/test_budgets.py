"""Kinds of index compared by budgets: what they hold and read, and which one is taken."""

import numpy as np
import pytest
from helpers.index_data import unit_vectors

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.index import SegmentWriter, train
from sentence_beam.transforms.index.budgets import (
    BYTES_PER_MS,
    Budgets,
    Tried,
    choose_best,
    count_held_bytes,
    list_kinds,
    make_base_plan,
    query_bytes,
    train_codes,
    try_kinds,
)
from sentence_beam.transforms.index.index_kinds import make_plan
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.sizes import estimate_size

DIM = 64


def kind(factory: str, recall: float | None, read: int, deep: float | None = 1.0) -> Tried:
    plan = make_plan(IndexSpec.parse(factory), 50_000, DIM, "ip")
    return Tried(plan, b"", count_held_bytes(plan), read, 8, 256, recall, deep)


@pytest.mark.parametrize(
    "factory", ["SQ8", "IVF4,SQbf16", "IVF4,SQ6", "IVF4,SQ4", "IVF4,RaBitQ", "IVF4,RaBitQ4", "Flat"]
)
def test_held_bytes_are_those_of_faiss(factory: str) -> None:
    plan = make_plan(IndexSpec.parse(factory), 1000, DIM, "ip")
    code = SegmentWriter(train(plan, unit_vectors(1000, DIM))).code_size
    assert count_held_bytes(plan) == code + (8 if plan.nlist else 0)


def test_kinds_are_those_within_the_bytes_of_a_row() -> None:
    found = [
        plan.factory
        for plan in list_kinds(
            IndexSpec.parse("auto"), 50_000, 384, "ip", True, Budgets(row_bytes=210)
        )
    ]
    assert found == ["IVF1024,SQ4", "IVF1024,RaBitQ2", "IVF1024,RaBitQ"]
    assert not any(
        "SQ8" in plan.factory
        for plan in list_kinds(IndexSpec.parse("auto"), 50_000, 384, "l2", False, Budgets())
    )
    assert [
        plan.factory
        for plan in list_kinds(
            IndexSpec.parse("auto"), 500, 384, "ip", True, Budgets(row_bytes=400)
        )
    ] == [
        "SQ8",
        "SQ6",
        "SQ4",
    ]
    for index, rows in (("auto", 50_000), ("compact", 50_000), ("IVF8,SQ8", 50_000), ("auto", 500)):
        with pytest.raises(
            OptionError,
            match=r"max_bytes_per_row 40: the smallest index of .* holds \d+ bytes a row",
        ):
            list_kinds(IndexSpec.parse(index), rows, 384, "ip", True, Budgets(row_bytes=40))


@pytest.mark.parametrize(
    ("rows", "budgets", "first"),
    [
        (500, Budgets(latency_ms=0.4), ["Flat"]),
        (500, Budgets(row_bytes=1536), ["Flat"]),
        (19_999, Budgets(latency_ms=16), ["Flat"]),
        (500, Budgets(row_bytes=1535), ["SQbf16", "SQ8", "SQ6", "SQ4"]),
        (500, Budgets(latency_ms=0.3), ["Flat", "SQbf16", "SQ8", "SQ6", "SQ4"]),
        (20_000, Budgets(latency_ms=1000), ["IVF512,SQbf16"]),
    ],
)
def test_few_rows_are_compared_by_their_vectors_within_the_budgets(
    rows: int, budgets: Budgets, first: list[str]
) -> None:
    assert [
        plan.factory for plan in list_kinds(IndexSpec.parse("auto"), rows, 384, "ip", True, budgets)
    ][: len(first)] == first
    if first == ["Flat"]:
        assert len(list_kinds(IndexSpec.parse("auto"), rows, 384, "ip", True, budgets)) == 1


def test_the_kind_that_finds_most_of_those_that_reach_the_target_is_taken() -> None:
    found = [
        kind("IVF4,SQ8", 0.99, 900),
        kind("IVF4,SQ4", 0.96, 500),
        kind("IVF4,RaBitQ", 0.9, 100),
    ]
    assert choose_best(found, Budgets(0.95)) == (found[0], True)
    assert choose_best(found, Budgets(0.95, latency_ms=600 / BYTES_PER_MS)) == (found[1], True)
    assert choose_best(found, Budgets(0.98, latency_ms=600 / BYTES_PER_MS)) == (found[1], False)
    alike = kind("IVF4,SQ6", 0.987, 700)
    assert choose_best([*found, alike], Budgets(0.95)) == (alike, True)
    shallow = kind("IVF4,RaBitQ2", 0.995, 100, deep=0.7)
    assert choose_best([*found, shallow], Budgets(0.95)) == (found[0], True)
    assert choose_best([shallow, found[2]], Budgets(0.95)) == (shallow, True)


def test_more_lists_and_candidates_are_more_bytes() -> None:
    plan = make_plan(IndexSpec.parse("IVF1024,RaBitQ"), 200_000, 384, "ip")
    read = [
        query_bytes(plan, 200_000, nprobe, depth)
        for nprobe, depth in ((8, 50), (16, 50), (16, 100), (2048, 100))
    ]
    assert read == sorted(set(read))
    assert read[-1] == 1024 * 384 * 4 + 200_000 * 64 + 100 * 776


@pytest.mark.parametrize("metric", ["ip", pytest.param("l2", marks=pytest.mark.slow)])
def test_kinds_are_tried_on_a_sample_and_built_of_the_same_lists(metric: str) -> None:
    vectors, queries = unit_vectors(1200, DIM), unit_vectors(60, DIM, seed=1)
    plans = [
        make_plan(IndexSpec.parse(f"IVF8,{codec}"), 1200, DIM, metric)
        for codec in ("SQ8", "SQ4", "RaBitQ")
    ]
    start = train(make_base_plan(plans, 1200), vectors)
    budgets, tuning = Budgets(0.9), np.arange(60) % 2 == 0
    found = try_kinds(plans, start, vectors, queries, tuning, 1200, budgets)
    again = try_kinds(plans, start, vectors, queries, tuning, 1200, budgets)
    assert found == again
    sq8, sq4, compact = found
    assert (sq8.recall or 0) > 0.9
    assert sq8.query_bytes > sq4.query_bytes
    assert compact.row_bytes < sq4.row_bytes < sq8.row_bytes
    assert compact.trained == train_codes(plans[2], start, vectors)
    few = try_kinds(
        plans[:1], start, vectors, queries, tuning, 1200, Budgets(0.99, latency_ms=0.02)
    )
    assert few[0].most_lists < 8
    assert (
        try_kinds(plans[:1], start, vectors, queries[:0], tuning[:0], 1200, budgets)[0].recall
        is None
    )


def test_sizes_grow_with_rows_and_bits() -> None:
    sizes = [
        estimate_size(make_plan(IndexSpec.parse(f"IVF1024,{codec}"), 50_000, 384, "ip"), 50_000)
        for codec in ("RaBitQ", "SQ8")
    ]
    assert sizes[0].memory < sizes[1].memory < 50_000 * 500
    assert sizes[0].bytes > sizes[0].memory + 50_000 * 776
    assert 0 < sizes[0].cpu_hours < 0.1
