"""Pushes that read what the runs recorded, and leave the database equal to the store."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.databases import Aliased, MadeUp, push_to
from helpers.examples import examples
from helpers.pushes import Kept, check, expected, files_of, in_memory
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.push.pushed_rows import find_columns
from sentence_beam.transforms.push.recorded import compare_recorded
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.changed_rows import Changes

TEXTS = {f"i{n}": f"text {n}" for n in range(9)}
Night = dict[str, str]
NIGHT = st.dictionaries(
    st.sampled_from([f"i{n}" for n in range(6)]), st.sampled_from(["apple", "bird", ""])
)


def night(store: Kept, texts: Night) -> Manifest:
    """A snapshot of these rows, three to a file, whose run recorded what it changed."""
    return store.commit_counted(files_of(texts))


@settings(max_examples=examples(12, few=4), deadline=None)
@given(st.lists(st.tuples(NIGHT, st.booleans()), min_size=2, max_size=5))
def test_a_push_of_recorded_changes_leaves_the_database_as_the_store(
    nights: list[tuple[Night, bool]],
) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        store, database = Kept(Path(folder) / "store"), Aliased()
        for number, (texts, is_pushed) in enumerate(nights):
            new = night(store, texts)
            if is_pushed or number in (0, len(nights) - 1):
                push_to(MadeUp(database, None), new)
                check(database.held(), expected(files_of(texts)))


@pytest.fixture
def store(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "store")


def test_no_vector_is_read_to_compare(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    old = night(store, TEXTS)
    night(store, {**TEXTS, "i1": "another"})
    changed = {**TEXTS, "i1": "another", "i2": "other", "i9": "a new one"}
    del changed["i8"]
    new = night(store, changed)
    monkeypatch.setattr("sentence_beam.transforms.push.snapshot_difference.read_rows", None)
    found = compare_recorded(new, find_columns(new), [old])
    assert found is not None
    assert found.counts == Changes(added=1, changed=2, deleted=1)
    assert found.deleted == ["i8"]
    assert sorted(list(rows) for rows in found.rows.values()) == [[0], [1, 2]]


def test_recorded_changes_do_not_tell_what_else_differs(store: Kept) -> None:
    old = night(store, TEXTS)
    new = night(store, {**TEXTS, "i1": "another"})
    columns = find_columns(new)
    assert compare_recorded(new, columns, [old]) is not None
    embedded_again = replace(new, generation=1)
    fewer_columns = replace(old, options=replace(old.options, keep_columns=("size",)))
    for pair in ((embedded_again, old), (new, fewer_columns), (replace(new, changes=None), old)):
        assert compare_recorded(pair[0], columns, [pair[1]]) is None
    (store.root / "manifests" / f"{old.run}.json").unlink()
    night(store, TEXTS)
    last = read_manifest(str(store.root))
    assert last is not None
    assert compare_recorded(last, columns, [old]) is None


def test_ids_that_repeated_in_between_are_compared_by_their_rows(store: Kept) -> None:
    rows = list(TEXTS.items())
    old = store.commit_counted({"a": rows})
    store.commit_counted({"a": [*rows, ("i1", "a second one")]})
    result = store.root / "runs" / store.manifest.run / "result.json"
    assert result.exists()
    result.unlink()  # as if it had said that ids repeat
    new = store.commit_counted({"a": rows})
    assert compare_recorded(new, find_columns(new), [old]) is None
