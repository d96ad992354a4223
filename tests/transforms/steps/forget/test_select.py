"""Which rows `forget` erases, on made-up stores: by id, by filter, in every snapshot; and refusals."""

from pathlib import Path

import pytest
from helpers.snapshots import night, numbered, run_name, units_of

from sentence_beam.transforms.base.errors import DataGateError, OptionError
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.request import ForgetRequest
from sentence_beam.transforms.steps.forget.select import ErasedRows, select
from sentence_beam.transforms.store.manifest import Manifest, read_manifest


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of two units whose ids are the rows' own."""
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9), id_column="id")
    return root


def snapshots(root: str, *numbers: int) -> list[Manifest]:
    """The snapshots of some nights."""
    found = [read_manifest(root, run_name(number)) for number in numbers]
    return [manifest for manifest in found if manifest is not None]


def selected(root: str, *numbers: int, known: tuple[str, ...] = (), **values: object) -> ErasedRows:
    """The rows of snapshots that a request names."""
    kept = snapshots(root, *(numbers or (0,)))
    return select(kept[-1], kept, ForgetRequest(**values), set(known))  # type: ignore[arg-type]


def places(found: ErasedRows) -> list[list[int]]:
    """The places of the rows in each shard that has any."""
    return sorted(mask.nonzero()[0].tolist() for mask in found.masks.values())


def test_a_row_is_found_by_its_id_with_its_text(root: str) -> None:
    found = selected(root, ids=("r3", "r5"))
    assert places(found) == [[0], [3]]
    assert found.rows == 2
    assert found.ids == {"r3", "r5"}
    assert found.gone == {*row_hashes(["text 3", "text 5"])}


def test_rows_of_earlier_snapshots_are_found_with_every_text_that_they_had(root: str) -> None:
    night(root, 1, {"r0": "other", "r1": "text 1"}, numbered(5, 9), id_column="id")
    found = selected(root, 0, 1, ids=("r0",))
    assert places(found) == [[0], [0]]
    assert found.texts["r0"].rows == {*row_hashes(["text 0", "other"])}
    assert found.rows == 1, "rows of the current snapshot"


def test_a_row_with_an_id_of_its_own_leaves_others_with_its_text(root: str) -> None:
    night(root, 1, {"a": "same", "b": "same", "c": "own"}, id_column="id")
    found = selected(root, 1, ids=("a", "c"), max_deletes=1.0)
    assert places(found) == [[0, 2]]
    found.shared |= {*row_hashes(["same"])}
    assert found.gone == {*row_hashes(["own"])}


def test_rows_without_ids_of_their_own_are_known_by_their_text(tmp_path: Path) -> None:
    root = str(tmp_path / "places")
    night(root, 0, {"a.txt#0": "x", "a.txt#1": "y"}, {"b.txt#0": "x", "b.txt#1": "z"})
    found = selected(root, ids=("a.txt#0",))
    assert places(found) == [[0], [0]]
    assert found.ids == {"a.txt#0", "b.txt#0"}
    assert found.shared == set()


def test_an_id_that_no_row_has_is_refused_unless_it_was_erased_before(root: str) -> None:
    with pytest.raises(OptionError, match="no row with the id 'none'; leave it out"):
        selected(root, ids=("r1", "none"))
    assert selected(root, ids=("r1", "none"), missing_ok=True).rows == 1
    assert selected(root, ids=("r1", "none"), known=("none",)).rows == 1
    with pytest.raises(OptionError, match="'n4' and 2 more"):
        selected(root, ids=tuple(f"n{n}" for n in range(7)))


@pytest.mark.parametrize(("share", "is_refused"), [(0.2, True), (0.25, False)])
def test_more_rows_than_allowed_are_a_gate(root: str, share: float, is_refused: bool) -> None:
    night(root, 1, numbered(0, 8), id_column="id")
    if is_refused:
        with pytest.raises(DataGateError, match="2 rows of 8 would be erased"):
            selected(root, 1, ids=("r1", "r2"), max_deletes=share)
    else:
        assert selected(root, 1, ids=("r1", "r2"), max_deletes=share).rows == 2


def test_rows_of_a_damaged_shard_are_lost(root: str) -> None:
    damaged = units_of(root)[0]["path"]
    path = Path(root) / damaged
    path.write_bytes(path.read_bytes()[:100])
    found = selected(root, ids=("r5",))
    assert found.lost.keys() == {damaged}
    assert found.lost[damaged].all()
    removed = found.removed(damaged)
    assert removed is not None
    assert removed.all()
    assert found.removed("embeddings/none.parquet") is None
