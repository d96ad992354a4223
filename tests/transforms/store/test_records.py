"""Records of units, read from JSON that may have anything in it."""

import json
from typing import Any

import pytest

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS, UnitRecord

RECORD = UnitRecord(
    path="embeddings/0123456789abcdef-000000000000-0123456789abcdef.parquet",
    unit="0123456789abcdef-000000000000",
    file="a.parquet",
    range=(0, 7),
    rows=7,
    read=7,
    rejected=0,
    rejects=None,
    tokens=70,
    truncated=0,
    lost=0,
    bytes=900,
    sha256="0" * 64,
    run="20261120T020000_431Z-41c6d2",
    measures={"read_ms": 1.5},
    moved=(0.5, 1e30),
    form="0123456789abcdef",
)
JSON = json.loads(RECORD.to_json())
COUNTS = (*KEPT_COUNTS, *WORK_COUNTS, "bytes", "carried")


def test_a_record_comes_back_from_its_sidecar() -> None:
    found = UnitRecord.from_dict(JSON)
    assert found == RECORD
    assert (found.measures, found.moved) == (RECORD.measures, RECORD.moved)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {**JSON, "more": 1},
        {name: value for name, value in JSON.items() if name != "rows"},
    ],
)
def test_other_json_is_no_record(wrong: Any) -> None:
    with pytest.raises(SentenceBeamError, match="not a unit's record"):
        UnitRecord.from_dict(wrong)


WRONG: list[tuple[str, Any]] = [
    *((name, value) for name in COUNTS for value in (-1, 1.0, True, "1", None)),
    *(("range", value) for value in ([1], [2, 1], [-1, 2], [0, 1.0], [True, 2], 3, "01")),
    *(("path", value) for value in ("../x.parquet", "/etc/passwd", 1)),
    *(("rejects", value) for value in ("../x", 1)),
    *(("unit", value) for value in ("", "x y", None, 3)),
    *((name, 1) for name in ("file", "sha256", "rejects_sha256", "checksum", "worker")),
    *(("documents", value) for value in (-1, 1.0, True)),
    *((name, value) for name in ("sha256", "rejects_sha256") for value in ("", "x", "0" * 63)),
    ("pieces_sum", "0123456789abcdef"),  # without documents_sum
    *(("form", value) for value in ("", "0123", 8)),
    *(("run", value) for value in ("../x", None)),
    *(("damaged", value) for value in (["../x"], "x", [None])),
    *(("moved", value) for value in ([float("nan")], [True], ["1"], 1)),
    *(("measures", value) for value in ({"read_ms": float("inf")}, {"read_ms": "1"}, [], None)),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_that_no_unit_can_have_is_named(name: str, value: Any) -> None:
    with pytest.raises(SentenceBeamError) as raised:
        UnitRecord.from_dict({**JSON, name: value})
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"not a unit's record: {name} is ")
    assert str(value) in line
