"""Files that no snapshot names, and lines that quote ids, on made-up stores."""

import json
from pathlib import Path

import pytest
from helpers.snapshots import begin, night, numbered, run_name, write_unit

from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.leftovers import (
    files_of,
    leftovers,
    named,
    scrubbed,
    scrubbed_results,
)
from sentence_beam.transforms.steps.forget.select import ErasedRows, TextHashes
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of a night with two units."""
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9), id_column="id")
    return root


def erased(*rows: tuple[str, str]) -> ErasedRows:
    """Rows to erase, by id and text."""
    texts = {name: TextHashes(rows=set(row_hashes([text]))) for name, text in rows}
    return ErasedRows(texts=texts)


def names_of(root: str) -> set[str]:
    manifest = read_manifest(root)
    assert manifest is not None
    return named([manifest])


def test_a_snapshot_names_all_that_it_needs(root: str) -> None:
    stay = names_of(root)
    there = {path for path in files_of(root) if path.startswith(("embeddings/", "sidecars/"))}
    assert there
    assert there <= stay
    assert leftovers(root, files_of(root), stay, erased(("r0", "text 0"))) == set()


def test_a_shard_of_a_run_that_broke_off_goes_if_an_erased_row_is_in_it(root: str) -> None:
    run = begin(root, 1, 1)
    unit = write_unit(root, 0, [("a", "own text"), ("b", "another")], run.id)
    stay = names_of(root)
    kept = leftovers(root, files_of(root), stay, erased(("r0", "text 0")))
    assert unit.path not in kept
    by_id = leftovers(root, files_of(root), stay, erased(("a", "no such text")))
    by_text = leftovers(root, files_of(root), stay, erased(("x", "another")))
    assert by_id == by_text
    assert {path.partition("/")[0] for path in by_id} >= {"embeddings", "sidecars"}
    assert unit.path in by_id


def test_a_shard_that_cannot_be_read_may_hold_an_erased_row(root: str) -> None:
    run = begin(root, 1, 1)
    unit = write_unit(root, 0, [("a", "own text")], run.id)
    Path(root, str(unit.path)).write_bytes(b"PAR1 no more")
    found = leftovers(root, files_of(root), names_of(root), erased(("r0", "text 0")))
    assert unit.path in found


@pytest.mark.parametrize(
    ("line", "ids", "left"),
    [
        ("row a-1 of x", ["a-1"], "row (erased) of x"),
        ("row a-10 of a-1.txt", ["a-1"], "row a-10 of a-1.txt"),
        ("a, b and a", ["a", "b"], "(erased), (erased) and (erased)"),
        ("nothing", ["", "x"], "nothing"),
        ("(.*) is an id", ["(.*)"], "(erased) is an id"),
    ],
)
def test_ids_leave_a_line_where_they_are_whole_words(line: str, ids: list[str], left: str) -> None:
    assert scrubbed(line, ids) == left


def test_records_of_runs_lose_ids_and_stay_sealed(root: str) -> None:
    path = f"runs/{run_name(0)}/result.json"
    content = json.loads(Path(root, path).read_bytes())
    content["message"] = "row r3 is too long"
    content.pop("digest")
    Path(root, path).write_bytes(to_bytes(sealed(content)))
    assert scrubbed_results(root, [path], ["r4"]) == {}
    found = json.loads(scrubbed_results(root, [path, "manifest.json"], ["r3"])[path])
    assert found["message"] == "row (erased) is too long"
    digest = found.pop("digest")
    assert sealed(found)["digest"] == digest
    Path(root, path).write_bytes(b"no json")
    assert scrubbed_results(root, [path], ["r3"]) == {}
