"""Manifests with very many units or files: a worker reads the parts alone that can have what it
asks for.

Covers transforms/corpus/groups.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan, group_name
from sentence_beam.transforms.store import manifest_parts as module
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.manifest_parts import write_parts
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.reuse import Known, with_before

FILES = 40
UNITS_OF_A_FILE = 5


def file(relative: str, checksum: str = "") -> InputFile:
    return InputFile(
        f"/in/{relative}", relative, "text", "", 100, checksum or f"sum of {relative}", "v"
    )


def entry(relative: str) -> InputEntry:
    return InputEntry(relative, f"/in/{relative}", "text", f"sum of {relative}", "v", 100)


def unit(name: str, relative: str = "") -> UnitRecord:
    return UnitRecord(
        path=f"embeddings/{name}-{0:016x}.parquet", unit=name, file=relative, range=(0, 1), rows=1, read=1, rejected=0,
        rejects=None, tokens=1, truncated=0, lost=0, bytes=1, sha256="0",
    )  # fmt: skip


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Manifests have a part for ten units; the parts that were read, by path."""
    read: list[str] = []
    original = module.read_part

    def noted(root: str, part: Any) -> Any:
        read.append(part.path)
        return original(root, part)

    monkeypatch.setattr(module, "UNITS_IN_A_PART", 10)
    monkeypatch.setattr(module, "read_part", noted)
    module.units_of_part.cache_clear()
    return read


@pytest.fixture
def large(tmp_path: Path, parts: list[str]) -> Manifest:
    """A snapshot of forty files with five units each, and ten small files in groups of two bits."""
    units = [
        unit(f"{file(f'{n}').key}-{place:012d}", f"{n}")
        for n in range(FILES)
        for place in range(UNITS_OF_A_FILE)
    ]
    small = [f"small-{n}" for n in range(10)]
    units += [unit(name) for name in {group_name(name, 2) for name in small}]
    (path,) = (Path(__file__).parents[2] / "fixtures" / "manifests").glob("*.json")
    empty = replace(read_fixture(path), root=str(tmp_path))
    made = in_parts(empty, units, [entry(name) for name in (*map(str, range(FILES)), *small)])
    return replace(made, data=made.to_json())


def in_parts(manifest: Manifest, units: list[UnitRecord], files: list[InputEntry]) -> Manifest:
    """The manifest with these units and files in parts."""
    parts = write_parts(manifest.root, sorted(units, key=lambda one: one.unit), files)
    return replace(manifest, shards=(), input=replace(manifest.input, files=()), parts=tuple(parts))


def read_fixture(path: Path) -> Manifest:
    import json

    return Manifest.of("/store", json.loads(path.read_bytes()))


def test_units_of_a_file_are_found_in_a_part_or_two(large: Manifest, parts: list[str]) -> None:
    assert len(large.parts) >= 20
    assert sum(part.units for part in large.parts) == len(large.units)
    assert sorted(large.units, key=lambda one: one.unit) == large.units
    assert [one.path for one in large.files][:3] == ["0", "1", "10"]
    for number in range(FILES):
        parts.clear()
        found = large.units_of(file(f"{number}").key)
        assert found == [one for one in large.units if one.file == f"{number}"]
        assert len(parts) <= 2
    assert large.units_of(file("nowhere").key) == []


def test_a_name_is_whole_or_goes_on_with_a_piece(large: Manifest) -> None:
    group = next(one.unit for one in large.units if one.unit.startswith("f2-"))
    assert [one.unit for one in large.units_of(group)] == [group]
    assert large.units_of(group[:-1]) == [], "f2- is the beginning of names, and no name"


def test_more_parts_than_units(tmp_path: Path, large: Manifest) -> None:
    few = in_parts(large, large.units[:3], [entry(f"{n}") for n in range(95)])
    assert [len(few.parts), few.input.files, few.shards] == [10, (), ()]
    assert len(few.files) == 95
    assert [few.units_of(one.unit) for one in large.units[:3]] == [[one] for one in large.units[:3]]


def test_a_worker_reads_no_more_than_what_its_span_says(
    large: Manifest, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Span(file("3"), 0, 0, None)
    renamed = Span(file("new name", "sum of 7"), 0, 0, None)
    new = Span(file("new"), 0, 0, None)
    small = GroupSpan(
        "f2-0", (Span(file("small-1"), 0, 0, None), Span(file("small-new"), 0, 0, None))
    )
    spans: list[AnySpan] = [plain, renamed, new, small]
    told = with_before(spans, large)
    assert [span.name for span in told] == [span.name for span in spans]
    known = Known("/store", "run")
    known.__dict__["manifest"] = replace(large)  # which has read nothing yet
    parts.clear()
    assert {one.file for one in known.of_files([told[0].file])} == {"3"}
    assert {one.file for one in known.of_files([told[1].file])} == {"7"}
    assert known.of_files([told[2].file]) == []
    assert isinstance(told[3], GroupSpan)
    assert [one.unit for one in known.of_files([one.file for one in told[3].spans])] == [
        group_name("small-1", 2)
    ]
    assert len(parts) <= 6
    assert known.had(large.units[17])
    assert "units" not in vars(known.manifest), "the whole snapshot was read"


def test_a_manifest_whose_parts_have_no_names_is_read_whole(large: Manifest) -> None:
    earlier = replace(large, parts=tuple(replace(part, first="", last="") for part in large.parts))
    key = file("3").key
    assert earlier.units_of(key) == large.units_of(key)
    assert read_manifest("/nowhere") is None


def test_snapshots_share_the_units_and_files_of_parts_that_both_have(
    large: Manifest, parts: list[str]
) -> None:
    opened = replace(large)
    edited = [
        replace(one, path=f"embeddings/{one.unit}-{1:016x}.parquet") if one.file == "7" else one
        for one in opened.units
    ]
    following = in_parts(opened, edited, opened.files)
    parts.clear()
    following.share(opened)
    assert following.units == edited
    assert set(parts) == {one.path for one in following.parts} - {one.path for one in opened.parts}
    known = {id(one) for one in opened.units}
    others = [one for one in following.units if id(one) not in known]
    assert 0 < len([one for one in others if one.file == "7"]) == UNITS_OF_A_FILE
    assert len(others) <= 2 * module.UNITS_IN_A_PART
    assert following.files == opened.files
    known = {id(one) for one in opened.files}
    files = [one for one in following.files if id(one) not in known]
    assert len(files) <= 2, "those of the part that has the edited units"
    # a store of another form has other records of the same JSON
    parts.clear()
    other = replace(following, generation=following.generation + 1)
    other.share(opened)
    assert len(other.units) == len(edited)
    assert set(parts) == {one.path for one in other.parts}
