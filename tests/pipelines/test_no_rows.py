"""A day without rows, and ids that are numbers: `embed` and the questions of a program after it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sentence_beam as sb

FRAME = pd.DataFrame({"id": [7, 8, 9], "text": ["a man eats", "a dog runs", "a house"]})
STARS = FRAME.assign(stars=[5, 4, 3])
NONE = STARS[STARS.id > 9]


@pytest.fixture
def how(model: Path, store: Path) -> dict[str, Any]:
    return {"store": store, "model": model, "dtype": "float32", "id_column": "id"}


def counts(store: sb.Store) -> tuple[int, int]:
    """The rows, and those that the run embedded."""
    return len(store), store.manifest.data["work"]["embedded"]


@pytest.mark.parametrize("partition", ["file", "content"])
def test_the_first_day_has_no_rows(how: dict[str, Any], partition: str) -> None:
    how |= {"partition": partition, "keep_columns": ["stars"]}
    assert counts(sb.embed([], **how)) == (0, 0)
    assert counts(sb.embed(NONE, **how)) == (0, 0)
    found = sb.embed(STARS, **how)
    assert counts(found) == (3, 3)
    assert str(found.dataset().schema.field("stars").type) == "int64"


def test_days_without_rows_add_nothing(how: dict[str, Any]) -> None:
    how |= {"append": True, "text_template": "{text}: {stars}", "keep_columns": ["stars"]}
    assert counts(sb.embed(NONE, batch="monday", **how)) == (0, 0)
    assert counts(sb.embed(STARS, batch="tuesday", **how)) == (3, 3)
    for nothing in (NONE, [], {"text": []}, pd.DataFrame()):
        assert counts(sb.embed(nothing, **how)) == (3, 0)
    assert counts(sb.embed(STARS.assign(id=[1, 2, 3]), **how)) == (6, 3)


def test_no_rows_in_place_of_all_meet_the_gate(how: dict[str, Any]) -> None:
    first = sb.embed(FRAME, **how)
    with pytest.raises(sb.DataGateError, match="3 of the 3 rows .* would be deleted"):
        sb.embed(NONE, **how)
    assert sb.open_store(how["store"]).manifest.run == first.manifest.run
    assert counts(sb.embed(NONE, max_deletes=1.0, **how)) == (0, 0)


def test_ids_that_are_numbers(how: dict[str, Any], tmp_path: Path) -> None:
    store = sb.embed(FRAME, **how)
    for ids in ([7, 9], np.array([7, 9]), FRAME.id[[0, 2]], ["7", 9]):
        assert store.rows(ids)["id"].to_pylist() == ["7", "9"]
        assert store.search(ids=ids, k=1) == store.search(ids=["7", "9"], k=1)
    assert store.rows(7)["id"].to_pylist() == ["7"]
    assert store.search(ids=np.int64(7)) == store.search(ids="7")
    assert store.search(ids=[]) == []
    with pytest.raises(sb.OptionError, match="no row with the id '10'"):
        store.rows([10])
    with pytest.raises(sb.OptionError, match="7.0 .float. cannot be an id"):
        store.search(ids=[7.0])
    hits = [sb.search(store.root, id=one, k=1)["results"] for one in (7, [np.int64(7)], "7")]
    assert hits[0] == hits[1] == hits[2]
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    assert sb.forget(copy, id=[8, np.int32(9)], max_deletes=1.0)["erased"]
    assert sb.open_store(copy).numpy()[0].tolist() == ["7"]
