from itertools import pairwise

import numpy as np
import pytest
from helpers import index_data  # noqa: F401  (skips where faiss is missing)
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.index import choose_index
from sentence_beam.transforms.index.index_kinds import cut_lists
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.range_file import HEADER_BYTES, LIST_BYTES


@pytest.mark.parametrize(
    ("rows", "factory"),
    [
        (0, "Flat"),
        (19_999, "Flat"),
        (20_000, "IVF512,SQ8"),
        (200_000, "IVF2048,SQ8"),
        (1_000_000, "IVF4096,SQ8"),
        (5_000_000, "IVF8192,SQ8"),
        (20_000_000, "IVF65536_HNSW32,SQ8"),
        (500_000_000, "IVF262144_HNSW32,SQ8"),
    ],
)
def test_auto_follows_the_table(rows: int, factory: str) -> None:
    assert choose_index(rows, 384).factory == factory


@pytest.mark.parametrize("rows", [20_000, 25_001, 60_000, 123_456, 3_000_000, 12_000_000])
def test_every_list_has_its_training_rows(rows: int) -> None:
    plan = choose_index(rows, 384)
    assert 39 * plan.nlist <= plan.train_rows <= min(rows, 64 * plan.nlist)


def test_compact_is_re_ranked_and_small() -> None:
    plan = choose_index(200_000, 384, IndexSpec.parse("compact"))
    assert (plan.factory, plan.rerank) == ("IVF2048,RaBitQ", 50)
    assert choose_index(200_000, 384).rerank == 0


@pytest.mark.parametrize(
    ("index", "row_bytes"), [("Flat", 1544), ("IVF64,SQ8", 392), ("IVF64,RaBitQ", 64 + 776)]
)
def test_segments_stay_below_a_gigabyte_and_five_million_rows(index: str, row_bytes: int) -> None:
    plan = choose_index(10_000_000, 384, IndexSpec.parse(index))
    assert plan.segment_rows == min(5_000_000, 1_000_000_000 // row_bytes)


def test_deeper_codes_are_ranked_by_themselves() -> None:
    plan = choose_index(200_000, 384, IndexSpec.parse("IVF64,RaBitQ4"))
    assert (plan.rerank, plan.segment_rows) == (0, 1_000_000_000 // (384 // 2 + 28))
    for index in ("IVF64,RaBitQ1", "IVF64,RaBitQ9", "RaBitQ4"):
        with pytest.raises(OptionError, match="use auto, compact, Flat"):
            choose_index(100_000, 384, IndexSpec.parse(index))


@pytest.mark.parametrize(
    "index",
    [
        "HNSW32",
        "IVF64,PQ48x4fs",
        "OPQ16,IVF64,PQ16",
        "IDMap2,Flat",
        "IVF64",
        "IVF0,Flat",
        "RaBitQ",
        "PQ16",
        "none",
        "",
    ],
)
def test_other_kinds_are_refused_by_name(index: str) -> None:
    with pytest.raises(OptionError, match="use auto, compact, Flat") as error:
        choose_index(100_000, 384, IndexSpec.parse(index))
    assert f"index {index}:" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_faiss_refuses_is_one_line() -> None:
    with pytest.raises(OptionError, match="faiss refuses it for 384 components") as error:
        choose_index(100_000, 384, IndexSpec.parse("IVF64,PQ7"))
    assert "\n" not in str(error.value)


def test_more_lists_than_rows_are_refused() -> None:
    with pytest.raises(OptionError, match="trained on 100 rows or more, and there are 99"):
        choose_index(99, 16, IndexSpec.parse("IVF100,Flat"))


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(OptionError, match="manhattan.*use cosine, ip or l2"):
        choose_index(10, 16, metric="manhattan")


@pytest.mark.parametrize(
    ("unit", "index", "codec"),
    [(True, "auto", "SQ8"), (False, "auto", "SQbf16"), (False, "compact", "RaBitQ")],
)
def test_codes_of_rows_of_any_length_do_not_depend_on_a_samples_extremes(
    unit: bool, index: str, codec: str
) -> None:
    assert choose_index(100_000, 64, IndexSpec.parse(index), unit=unit).factory.endswith(
        f",{codec}"
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(30, 3000))
def test_ranges_are_few_and_none_is_too_large_but_for_a_single_list(
    sizes: list[int], room: int
) -> None:
    plan = choose_index(200_000, 16, IndexSpec.parse("IVF64,SQ8"))
    bytes_of = [size * plan.spec.row_bytes(16) + LIST_BYTES for size in sizes]
    cuts = cut_lists(np.array(sizes), plan, room + HEADER_BYTES)
    assert (cuts[0][0], cuts[-1][1]) == (0, len(sizes))
    assert all(one[1] == other[0] for one, other in pairwise(cuts))
    lengths = [sum(bytes_of[first:stop]) for first, stop in cuts]
    assert all(
        length <= room or stop == first + 1
        for length, (first, stop) in zip(lengths, cuts, strict=True)
    )
    # fewer than twice as many as their bytes need
    if len(cuts) > 1:
        assert len(cuts) <= 2 * -(-sum(bytes_of) // room)
