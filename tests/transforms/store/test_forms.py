"""Forms: equal for shards that belong together, whoever wrote them; other shards are refused by the
commit.

Covers transforms/base/json_entries.py.
Covers transforms/store/entries.py.
"""

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.forms import (
    HALF,
    check_forms,
    compute_run_form,
    compute_shard_form,
    describe_type,
)

OPTIONS = RememberedOptions(id_column="id", keep_columns=("n", "lang"), keep_text=True)
PLAIN_TYPES = [
    pa.bool_(), pa.int8(), pa.int64(), pa.uint16(), pa.uint32(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16), pa.date32(), pa.date64(), pa.time32("s"),
    pa.time32("ms"), pa.time64("us"), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
    pa.duration("s"), pa.decimal128(9, 2), pa.decimal256(40, 3), pa.null(), pa.uuid(), pa.json_(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()),
]  # fmt: skip
TYPES = st.recursive(
    st.sampled_from(PLAIN_TYPES),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(pa.field("item", kind, nullable=pa.types.is_null(kind)))),
        inner.map(lambda kind: pa.list_(kind, 3)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{n}", k) for n, k in enumerate(kinds)])
        ),
    ),
    max_leaves=3,
)


@given(TYPES)
def test_a_column_has_one_kind_in_a_file_and_when_it_is_read_back(kind: pa.DataType) -> None:
    file = io.BytesIO()
    try:
        pq.write_table(pa.schema([("kept", kind)]).empty_table(), file)
    except pa.ArrowException:
        return  # such a column cannot be kept
    assert describe_type(pq.read_schema(file).field("kept").type) == describe_type(kind)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
        (pa.timestamp("us"), pa.string()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
    ],
)
def test_other_types_are_other_kinds(one: pa.DataType, other: pa.DataType) -> None:
    assert describe_type(one) != describe_type(other)


def form_of(space: Space, options: RememberedOptions = OPTIONS, generation: int = 0) -> str:
    return compute_run_form(space, generation, options)


@pytest.mark.parametrize(
    "values",
    [
        {"keep_columns": ("n",)},
        {"keep_columns": ("lang", "n")},
        {"keep_text": False},
        {"id_column": None},
        {"id_column": "n"},
        {"text_column": "other"},
        {"text_template": "{a}"},
    ],
)
def test_options_that_decide_what_is_in_a_shard_give_another_form(
    space: Space, values: dict[str, Any]
) -> None:
    assert form_of(space, replace(OPTIONS, **values)) != form_of(space)


def test_options_that_do_not_give_the_same(space: Space) -> None:
    others = {
        "max_rejects": 0.5,
        "format": "jsonl",
        "limit": 3,
        "model": "elsewhere",
        "metric": "l2",
        "hidden": True,
    }
    assert form_of(space, replace(OPTIONS, **others)) == form_of(space)


def test_spaces_generations_columns_and_bounds_give_other_forms(space: Space) -> None:
    forms = [
        form_of(space),
        form_of(replace(space, pooler={"name": "cls"})),
        form_of(space, generation=1),
    ]
    assert len({*forms}) == 3
    schemas = [
        None,
        pa.schema([("n", pa.int64())]),
        pa.schema([("m", pa.int64())]),
        pa.schema([("n", pa.string())]),
    ]
    shards = [
        compute_shard_form(forms[0], schema, ranges)
        for schema in schemas
        for ranges in (None, "a", "b")
    ]
    assert len({*shards}) == 12
    assert {form[:HALF] for form in shards} == {forms[0]}
    assert {len(form) for form in shards} == {16}


def test_shards_of_one_form_pass_and_others_are_refused(space: Space) -> None:
    ours, theirs = form_of(space), form_of(space, generation=1)
    of_numbers, of_texts = (
        compute_shard_form(ours, pa.schema([("n", kind)]), None)
        for kind in (pa.int64(), pa.string())
    )
    check_forms(ours, {})
    check_forms(ours, {of_numbers: "a"})
    for found in ({of_numbers: "a", compute_shard_form(theirs, None, None): "b"}, {theirs: "b"}):
        with pytest.raises(
            LedgerError, match="ledger: b is of another space, or has other kept columns"
        ):
            check_forms(ours, found)
    with pytest.raises(LedgerError, match="ledger: the kept columns of a and of b differ"):
        check_forms(ours, {of_texts: "b", of_numbers: "a"})


def test_what_forms_cover_stays_as_it_is(space: Space) -> None:
    """Carried units keep the forms that they were written with."""
    schema = pa.schema([("n", pa.int64()), ("at", pa.list_(pa.timestamp("s")))])
    assert compute_shard_form(form_of(space), schema, None) == "db623e963c49dbb4"
    assert (
        compute_shard_form(form_of(space, RememberedOptions(keep_text=False)), None, "c" * 64)
        == "171afcb671804010"
    )
