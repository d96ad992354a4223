"""What a manifest must be to be believed: whole to the byte, of known types, and with paths of the
store alone.

Covers transforms/store/index_entries.py.
"""

import hashlib
import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import edit_manifest
from helpers.settled import finish
from helpers.snapshots import (
    begin,
    changed,
    edit_files,
    edit_units,
    files_of,
    night,
    numbered,
    records_of,
    row_of,
    run_name,
    write_unit,
)
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import FORMAT, Manifest, read_manifest
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore
from sentence_beam.transforms.store.verification import faults

Data = dict[str, Any]
EVERY_FIELD = Path(__file__).parents[2] / "fixtures" / "manifest.json"


def test_a_manifest_with_every_field_comes_back_to_the_byte() -> None:
    whole = EVERY_FIELD.read_bytes()
    manifest = Manifest.from_data("/store", json.loads(whole))
    assert to_bytes(sealed(manifest.to_json())) == whole
    assert manifest.index is not None
    assert manifest.index.to_json() == manifest.data["index"]


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("rows",),
        ("options",),
        ("index",),
        ("index", "segments", 0),
        ("index", "trained"),
        ("index", "request"),
        ("input",),
        ("files",),
        ("units", "parts", 0),
        ("canary",),
    ],
)
def test_a_field_that_no_manifest_has_is_named(place: tuple[str | int, ...]) -> None:
    data = json.loads(EVERY_FIELD.read_bytes())
    within: Any = data
    for step in place:
        within = within[step]
    within["later"] = [{"more": 1}]
    with pytest.raises(ValueError, match="later is no field that this version knows"):
        Manifest.from_data("/store", data)


@pytest.mark.parametrize("other", [FORMAT + 1, "1", 0, None])
def test_another_format_is_refused_in_one_line(root: Path, other: object) -> None:
    edit_manifest(root / "manifest.json", {**current(root), "format": other})
    with pytest.raises(SentenceBeamError) as raised:
        open_store(str(root))
    said = f"{root}/manifest.json: format {other}, this version reads {FORMAT}: embed again"
    assert str(raised.value) == said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one snapshot of two units."""
    night(str(tmp_path / "store"), 0, numbered(0, 5), numbered(5, 9))
    return tmp_path / "store"


def current(root: Path) -> Data:
    """The JSON of the current manifest."""
    return json.loads((root / "manifest.json").read_bytes())


def own(root: Path) -> Path:
    """The manifest of the first run."""
    return root / "manifests" / f"{run_name(0)}.json"


@pytest.mark.parametrize("name", ["manifest.json", f"manifests/{run_name(0)}.json"])
def test_no_value_of_a_manifest_can_change_unnoticed(root: Path, name: str) -> None:
    path = root / name
    whole, meant = path.read_bytes(), json.loads(path.read_bytes())
    for place in range(0, len(whole), 23):
        for bit in (1, 32):
            changed = bytearray(whole)
            changed[place] ^= bit
            path.write_bytes(changed)
            try:
                same = json.loads(changed) == meant  # another blank
            except ValueError:
                same = False
            found = faults_of(root)
            assert same or any("is corrupt" in fault for fault in found), (place, bit, found)


def faults_of(root: Path) -> list[str]:
    """What `verify` says of a store's current snapshot."""
    try:
        return list(faults(open_store(str(root)).manifest))
    except SentenceBeamError as error:
        return [str(error)]


@pytest.mark.parametrize("key", ["options", "versions", "rows", "units", "started", "input"])
def test_two_manifests_that_disagree_are_named_with_the_field(root: Path, key: str) -> None:
    data = current(root)
    others: Data = {
        "options": {"model": "other"},
        "versions": {"torch": "0"},
        "started": "2020-01-01T00:00:00Z",
    }
    others |= {"rows": {"read": 8, "written": 8, "rejected": 0}}
    others |= {"input": {**data["input"], "globs": []}}
    if key == "units":
        edit_units(root, lambda units: units[1:])
        edit_manifest(root / "manifest.json", data)
    else:
        edit_manifest(own(root), {**data, key: others[key]})
    (fault,) = faults_of(root)
    assert fault.startswith(f"{own(root)}: says something else than manifest.json of {key}; ")


def test_the_fence_of_manifest_json_is_no_difference(root: Path) -> None:
    (root / "manifest.json").write_bytes(to_bytes({**current(root), "fence": "x"}))
    assert faults_of(root) == []
    night(str(root), 1, numbered(0, 5), numbered(5, 9))
    assert "fence" not in current(root)
    assert faults_of(root) == []


def test_a_run_goes_on_from_the_manifest_it_began_with_and_mends_the_copy(root: Path) -> None:
    whole = own(root).read_bytes()
    for content in (b"", whole.replace(b'"written": 9', b'"written": 8'), None):
        _ = own(root).write_bytes(content) if content is not None else own(root).unlink()
        number = len(list((root / "runs").iterdir()))
        assert night(str(root), number, numbered(0, 5), numbered(5, 9)).status == "committed"
        before = root / "manifests" / f"{run_name(number - 1)}.json"
        assert read_manifest(str(root), run_name(number - 1)) is not None
        assert before.read_bytes() != b""
        whole, path = (
            (root / "manifest.json").read_bytes(),
            root / "manifests" / f"{run_name(number)}.json",
        )
        assert path.read_bytes() == whole


CHANGES: dict[str, Callable[[Data], object]] = {
    "run": lambda m: m.update(run="../x"),
    "previous": lambda m: m.update(previous="a/b"),
    "canary.path": lambda m: m.update(canary={"path": "/etc/passwd", "sha256": "0"}),
    "ranges.path": lambda m: m.update(
        ranges={"path": "ranges/../../x.json", "digest": "0", "space": "0"}
    ),
    "calibration.digest": lambda m: m.update(
        calibration={"path": "calibrations/x", "digest": "../x"}
    ),
    "units.parts[0].path": lambda m: m["units"]["parts"][0].update(path="file:///x"),
    "files.parts[0].rows": lambda m: m["files"]["parts"][0].update(rows="9"),
    "files.rows": lambda m: m["files"].update(rows=None),
    "buckets.bits": lambda m: m.update(
        buckets={"bits": 99, "rows": 1, "chosen_rows": 1, "chosen_tokens": 1}
    ),
    "unit_tokens": lambda m: m.update(unit_tokens=-1),
    "rows.written": lambda m: m["rows"].update(written=True),
    "work.carried": lambda m: m["work"].update(carried=1.5),
    "options.keep_columns": lambda m: m["options"].update(keep_columns=5),
    "options.max_rejects": lambda m: m["options"].update(max_rejects="no"),
    "started": lambda m: m.update(started="yesterday"),
    "partition": lambda m: m.update(partition="neither"),
    "versions.torch": lambda m: m.update(versions={"torch": {}}),
    "index.metric": lambda m: m.update(index={"segments": [], "factory": "Flat"}),
}


@pytest.mark.parametrize("field", CHANGES)
def test_values_that_no_store_has_are_named_before_they_are_used(root: Path, field: str) -> None:
    data = current(root)
    CHANGES[field](data)
    edit_manifest(root / "manifest.json", data)
    check_is_named(root, field)


def check_is_named(root: Path, field: str) -> None:
    """One line says which field of the current snapshot no store has."""
    with pytest.raises(SentenceBeamError, match="is corrupt") as raised:
        records_of(root)
    assert field in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("segments", 0), "path"),
        (("segments", 0), "locator"),
        (("trained",), "path"),
        (("queries",), "path"),
    ],
)
@pytest.mark.parametrize("path", ["embeddings/x.parquet", "../x.parquet", "/x"])
def test_paths_of_an_index_are_the_layouts(
    place: tuple[str | int, ...], name: str, path: str
) -> None:
    data = json.loads(EVERY_FIELD.read_bytes())
    within: Any = data["index"]
    for step in place:
        within = within[step]
    within[name] = path
    with pytest.raises(ValueError, match=f"{name} is not a path of this store's index"):
        Manifest.from_data("/store", data)


def test_a_hostile_sidecar_is_no_record_of_a_unit(root: Path) -> None:
    for path in (root / "sidecars").iterdir():
        data = json.loads(path.read_bytes())
        path.write_text(
            json.dumps(
                {**data, "rejected": 1, "read": data["read"] + 1, "rejects": "../../../etc/x"}
            )
        )
    run = begin(str(root), 1, 2)
    units = [write_unit(str(root), place, list(rows.items()), run.id) for place, rows in
             enumerate((numbered(0, 5), numbered(5, 9)))]  # fmt: skip
    assert [unit.rejects for unit in units] == [None, None]
    assert finish(run, units, []).status == "committed"
    assert faults_of(root) == []


def test_rejected_rows_are_verified_also_where_a_unit_has_no_other(
    root: Path, space: Space
) -> None:
    store = UnitStore(str(root), space)
    unit = make_unit(space, [], rejects=2, name=f"{make_key('a.txt')}-{900:012}")
    record = store.write(unit, make_vectors(0), [], UnitCounts(0, 0, 0))
    path = root / str(record.rejects)
    assert (record.path, record.rejected) == (None, 2)
    assert record.rejects_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    edit_units(root, lambda units: sorted([row_of(record), *units], key=itemgetter("unit")))
    (file,) = files_of(root)
    edit_files(root, changed(0, units=file["units"] + 1, read=file["read"] + 2))
    data = {**current(root), "rows": {"read": 11, "written": 9, "rejected": 2}}
    for name in ("manifest.json", f"manifests/{run_name(0)}.json"):
        edit_manifest(root / name, data)
    assert faults_of(root) == []
    path.write_bytes(path.read_bytes() + b" ")
    (fault,) = faults_of(root)
    assert fault == f"{path}: the reject file was changed after it was written (sha256 differs)"
    assert store.finished(unit) is None
    assert store.write(unit, make_vectors(0), [], UnitCounts(0, 0, 0)) == record
    assert faults_of(root) == []
    path.unlink()
    (fault,) = faults_of(root)
    assert "is missing" in fault


def test_a_dataset_checks_the_pages_that_it_reads(root: Path) -> None:
    (path, *_) = (Path(path) for path in open_store(str(root)).manifest.shard_paths)
    assert open_store(str(root)).dataset().to_table(columns=["embedding"]).num_rows == 9
    whole = path.read_bytes()
    vectors = (
        open_store(str(root))
        .dataset()
        .to_table(columns=["embedding"])["embedding"]
        .combine_chunks()
        .flatten()
    )
    place = whole.index(vectors.to_numpy()[:4].tobytes())
    path.write_bytes(whole[:place] + b"\x00\x01" + whole[place + 2 :])
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        open_store(str(root)).dataset().to_table(columns=["embedding"])
