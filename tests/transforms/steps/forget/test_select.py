"""Which rows `forget` erases, on made-up stores: by id, by filter, in every snapshot; and refusals."""

from pathlib import Path

import pytest
from helpers.snapshots import night, numbered, units_of

from sentence_beam.transforms.base.errors import DataGateError, OptionError, SentenceBeamError
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.select import SelectedRows, select
from sentence_beam.transforms.steps.options.store import ForgetOptions
from sentence_beam.transforms.store.manifest import read_manifest


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of two units whose ids are the rows' own."""
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9), id_column="id")
    return root


def selected(root: str, already: tuple[str, ...] = (), **values: object) -> SelectedRows:
    """The rows of a store that a request names."""
    manifest = read_manifest(root)
    assert manifest is not None
    options = ForgetOptions(root, **values)  # type: ignore[arg-type]
    return select(manifest, options, set(already))


def places(found: SelectedRows) -> list[list[int]]:
    """The places of the rows in each shard that has any."""
    return sorted(mask.nonzero()[0].tolist() for mask in found.masks.values())


def test_a_row_is_found_by_its_id_with_its_text(root: str) -> None:
    found = selected(root, id=("r3", "r5"))
    assert places(found) == [[0], [3]]
    assert found.rows == 2
    assert found.texts.keys() == {"r3", "r5"}
    assert found.hashes == {*row_hashes(["text 3", "text 5"])}


def test_earlier_snapshots_tell_every_text_that_a_row_had(root: str) -> None:
    night(root, 1, {"r0": "other", "r1": "text 1"}, numbered(5, 9), id_column="id")
    found = selected(root, id=("r0", "r2"))
    assert places(found) == [[0]]
    assert found.texts["r0"].rows == {*row_hashes(["text 0", "other"])}
    assert found.texts["r2"].rows == {*row_hashes(["text 2"])}
    assert found.rows == 1, "rows of the current snapshot"


def test_a_row_with_an_id_of_its_own_leaves_others_with_its_text(root: str) -> None:
    night(root, 1, {"a": "same", "b": "same", "c": "own"}, id_column="id")
    found = selected(root, id=("a", "c"), max_deletes=1.0)
    assert places(found) == [[0, 2]]
    assert found.texts.keys() == {"a", "c"}


def test_rows_without_ids_of_their_own_are_known_by_their_text(tmp_path: Path) -> None:
    root = str(tmp_path / "places")
    night(root, 0, {"a.txt#0": "x", "a.txt#1": "y"}, {"b.txt#0": "x", "b.txt#1": "z"})
    found = selected(root, id=("a.txt#0",))
    assert places(found) == [[0], [0]]
    assert found.texts.keys() == {"a.txt#0", "b.txt#0"}


def test_a_place_that_another_row_had_before_erases_only_the_row_that_has_it_now(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "places")
    night(root, 0, {"a#0": "x", "a#1": "y", "a#2": "z"}, {"b#0": "u"})
    night(root, 1, {"a#0": "y", "a#1": "z"}, {"b#0": "u"})
    assert selected(root, id=("a#0",)).texts.keys() == {"a#0"}
    found = selected(root, id=("a#2",))
    assert places(found) == [[1]], "the row that was there is known by its text"
    assert found.hashes == {*row_hashes(["z"])}


def test_an_id_that_no_row_has_is_refused_unless_it_was_erased_before(root: str) -> None:
    with pytest.raises(OptionError, match="no row with the id 'none'; leave it out"):
        selected(root, id=("r1", "none"))
    assert selected(root, id=("r1", "none"), missing_ok=True).rows == 1
    assert selected(root, id=("r1", "none"), already=("none",)).rows == 1
    with pytest.raises(OptionError, match="'n4' and 2 more"):
        selected(root, id=tuple(f"n{n}" for n in range(7)))


@pytest.mark.parametrize(("share", "is_refused"), [(0.2, True), (0.25, False)])
def test_more_rows_than_allowed_are_a_gate(root: str, share: float, is_refused: bool) -> None:
    night(root, 1, numbered(0, 8), id_column="id")
    if is_refused:
        with pytest.raises(DataGateError, match="2 rows of 8 would be erased"):
            selected(root, id=("r1", "r2"), max_deletes=share)
    else:
        assert selected(root, id=("r1", "r2"), max_deletes=share).rows == 2


def test_a_damaged_shard_that_may_hold_a_row_ends_it(root: str) -> None:
    damaged = units_of(root)[0]["path"]
    path = Path(root) / damaged
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SentenceBeamError, match=f"{damaged} is missing or damaged.*nothing was"):
        selected(root, id=("r5",))


def test_damage_of_an_earlier_snapshot_is_removed_with_it(root: str) -> None:
    before = units_of(root)[0]["path"]
    night(root, 1, {"r0": "other"}, numbered(5, 9), id_column="id")
    (Path(root) / before).write_bytes(b"?")
    assert selected(root, id=("r5",)).rows == 1
