"""Old shards by row hash: what is found, what is read for it, and what damage does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import reused_vectors
from sentence_beam.transforms.store.runs.reused_vectors import OldShards
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors


@pytest.fixture
def written(unit_store: UnitStore, space: Space) -> list[UnitRecord]:
    """Five shards of four rows: t0 to t3, t4 to t7, ..., and a text that all of them have."""
    return [
        shard(unit_store, space, number, [*(f"t{4 * number + i}" for i in range(4)), "common"])
        for number in range(5)
    ]


def shard(unit_store: UnitStore, space: Space, number: int, texts: list[str]) -> UnitRecord:
    vectors = make_vectors(len(texts))
    vectors = Vectors(**{**vars(vectors), "embedding": vectors.embedding + 100 * number})
    unit = make_unit(space, texts, name=f"{'0' * 16}-{number:012d}")
    return unit_store.write(unit, vectors, [], UnitCounts(len(texts), 0, 0))


def old(
    unit_store: UnitStore, space: Space, units: list[UnitRecord], final: bool = True
) -> OldShards:
    return OldShards(unit_store.root, space, units, final)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Shards that are read whole."""
    seen: list[str] = []
    original = reused_vectors.read_checked

    def read_checked(path: str, *rest: object) -> object:
        seen.append(Path(path).name[17:29])
        return original(path, *rest)

    monkeypatch.setattr(reused_vectors, "read_checked", read_checked)
    return seen


def test_rows_come_from_whichever_shard_has_them(
    unit_store: UnitStore, space: Space, written: list[UnitRecord], read: list[str]
) -> None:
    found = old(unit_store, space, written).find(row_hashes(["t17", "nowhere", "t2", "t1", "t0"]))
    by_place = dict(zip(found.places.tolist(), found.vectors.embedding[:, 0].tolist(), strict=True))
    assert by_place == {0: 405.0, 2: 9.0, 3: 5.0, 4: 1.0}
    assert read == ["000000000000", "000000000004"]
    assert found.damaged == ()


def test_nothing_is_read_for_new_text(
    unit_store: UnitStore, space: Space, written: list[UnitRecord], read: list[str]
) -> None:
    found = old(unit_store, space, written).find(row_hashes(["new", "newer"]))
    assert (len(found.places), found.vectors, read) == (0, None, [])
    assert len(old(unit_store, space, []).find(row_hashes(["t1"])).places) == 0


def test_a_text_that_all_shards_have_opens_no_further_shard(
    unit_store: UnitStore, space: Space, written: list[UnitRecord], read: list[str]
) -> None:
    found = old(unit_store, space, written).find(row_hashes(["common", "t8", "t9"]))
    assert len(found.places) == 3
    assert read == ["000000000002"]


def test_shards_that_give_too_little_are_left_unread(
    unit_store: UnitStore,
    space: Space,
    written: list[UnitRecord],
    read: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reused_vectors, "ALWAYS_READ", 2)
    monkeypatch.setattr(reused_vectors, "ROWS_FOR_ONE", 3)
    found = old(unit_store, space, written).find(
        row_hashes(["t0", "t1", "t2", "t4", "t5", "t8", "t9", "t12"])
    )
    assert sorted(found.places.tolist()) == [0, 1, 2, 3, 4, 5, 6]
    assert len(read) == 3


@pytest.mark.parametrize("normalize", [True, False])
def test_pooled_vectors_for_another_output(
    unit_store: UnitStore, space: Space, normalize: bool
) -> None:
    space = replace(space, normalize=normalize)
    vectors = make_vectors(2)
    vectors = Vectors(**{**vars(vectors), "norm": np.array([2, 3], np.float32)})
    unit = make_unit(space, ["a", "b"])
    record = UnitStore(unit_store.root, space).write(unit, vectors, [], UnitCounts(2, 0, 0))
    found = old(unit_store, space, [record], final=False).find(row_hashes(["b", "a"]))
    expected = vectors.embedding * ([[2], [3]] if normalize else 1)
    assert np.array_equal(found.vectors.embedding[np.argsort(found.places)], expected[::-1])
    assert sorted(found.vectors.norm.tolist()) == [2, 3]


def test_lost_tokens_come_back_from_the_limit(unit_store: UnitStore, space: Space) -> None:
    vectors = make_vectors(2)
    vectors = Vectors(
        **{
            **vars(vectors),
            "tokens": np.array([5, 40], np.int32),
            "truncated": np.array([False, True]),
        }
    )
    record = unit_store.write(make_unit(space, ["a", "b"]), vectors, [], UnitCounts(2, 0, 0))
    found = old(unit_store, space, [record]).find(row_hashes(["a", "b"]))
    assert found.vectors.lost[np.argsort(found.places)].tolist() == [0, 40 - space.max_tokens]


def test_any_single_changed_byte_is_noticed(
    unit_store: UnitStore, space: Space, written: list[UnitRecord]
) -> None:
    path = Path(unit_store.root) / written[0].path
    whole = path.read_bytes()
    hashes, generator = row_hashes(["t0", "t1", "t2", "t3"]), np.random.default_rng(0)
    for place in [
        *range(0, 40),
        *generator.integers(0, len(whole), 200),
        *range(len(whole) - 40, len(whole)),
    ]:
        data = bytearray(whole)
        data[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(bytes(data))
        found = old(unit_store, space, written).find(hashes)
        assert len(found.places) == 0, place
        assert found.damaged == (written[0].path,), place


def test_rows_of_a_damaged_shard_are_taken_from_a_sound_one(
    unit_store: UnitStore, space: Space, written: list[UnitRecord]
) -> None:
    copy = shard(unit_store, space, 9, ["t0", "t1"])
    (Path(unit_store.root) / written[0].path).write_bytes(b"PAR1")
    found = old(unit_store, space, [*written, copy]).find(row_hashes(["t0", "t1", "t2"]))
    assert sorted(found.places.tolist()) == [0, 1]
    assert found.damaged == (written[0].path,)
