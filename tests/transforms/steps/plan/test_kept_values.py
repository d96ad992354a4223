"""Values of kept columns in shards, of every type that Parquet has."""

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
from helpers.corpora import write_parquet
from helpers.plans import night

from sentence_beam.transforms.store import open_store


def kept_of(folder: Path, *names: str) -> pa.Table:
    """The kept columns of a store that a run makes of a folder's files, by id."""
    store = folder / "store"
    night(store, folder / "*.parquet", id_column=None, keep_columns=names, max_rejects=1.0)
    return open_store(str(store)).dataset().to_table().sort_by("id")


def test_kept_columns_of_many_types_with_nulls(tmp_path: Path) -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    values = {
        "a_null": pa.array([None] * 4, pa.null()),
        "b_bool": pa.array([True, None, False, True]),
        "c_uint": pa.array([1, None, 2**64 - 1, 3], pa.uint64()),
        "d_float": pa.array([1.5, None, float("nan"), float("inf")]),
        "e_time": pa.array([when, None, when, when], pa.timestamp("us", "Europe/Berlin")),
        "f_date": pa.array([when.date(), None, when.date(), when.date()]),
        "g_list": pa.array([[1, 2], None, [], [3]]),
        "h_struct": pa.array(
            [{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}, {"x": 2, "y": None}]
        ),
        "i_map": pa.array([[("k", 1)], None, [], [("k", 2)]], pa.map_(pa.string(), pa.int64())),
        "j_decimal": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-2.25"), None]),
        "k_binary": pa.array([b"\x00\xff", None, b"", b"x"]),
        "l_dictionary": pa.array(["u", None, "v", "u"]).dictionary_encode(),
        "m_large": pa.array(["u", None, "v", "u"], pa.large_string()),
        "n_fixed": pa.array(
            [[1.0, 2.0], [0.0, None], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)
        ),
        "o_view": pa.array([b"u", None, b"v", b"w"], pa.binary_view()),
    }
    write_parquet(tmp_path / "a.parquet", ["one", "two", "", "four"], **values)
    table = kept_of(tmp_path, *values)
    assert len(table) == 3
    for name, column in values.items():
        assert table.column(name).to_pylist() == [column[i].as_py() for i in (0, 1, 3)], name


def test_kept_times_beyond_those_of_python(tmp_path: Path) -> None:
    times = pa.array([10**18, 1, None], pa.int64())
    write_parquet(
        tmp_path / "a.parquet",
        ["one", "two", ""],
        far=times.cast(pa.timestamp("us")),
        fine=times.cast(pa.timestamp("ns")),
    )
    table = kept_of(tmp_path, "far", "fine")
    assert [table.column(name).cast(pa.int64()).to_pylist() for name in ("far", "fine")] == [
        [10**18, 1]
    ] * 2
