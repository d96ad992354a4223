"""An index cut by its lists, over nights, against the same index in one range.

Covers transforms/steps/index/listed.py.
Covers transforms/steps/index/ranges.py.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from helpers.nights import Nights, run_steps, vector_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index import choose, upkeep
from sentence_beam.transforms.index.range_readers import MappedRange
from sentence_beam.transforms.steps.index import update_decision, update_segments
from sentence_beam.transforms.store.verify import faults

pytest.importorskip("faiss")

TOPICS = "abcd"
SMALL = 1500  # bytes of a range
Files = dict[str, list[tuple[str, str]]]


def collection(rows: int = 40) -> Files:
    """Rows of four topics in three files; some texts are in several."""
    return {
        f"f{i}": [(f"{j}-{i}", f"{TOPICS[j % 4]} {j % 23} {i % 2}") for j in range(rows)]
        for i in range(3)
    }


def base(index: dict[str, Any]) -> list[dict[str, Any]]:
    return [segment for segment in index["segments"] if segment["kind"] == "base"]


def check_layout(index: dict[str, Any]) -> None:
    """The ranges are disjoint, in the bytes that a range may have, and alone have lists."""
    assert index["layout"] == "lists"
    bounds = sorted(tuple(segment["lists"]) for segment in base(index))
    for (_, stop), (first, _) in zip(bounds, bounds[1:], strict=False):
        assert stop <= first
    for segment in base(index):
        first, stop = segment["lists"]
        assert segment["bytes"] <= choose.RANGE_BYTES or stop == first + 1
    assert not any(s.get("lists") for s in index["segments"] if s["kind"] != "base")
    ids = sorted((s.get("first_id", 0), s.get("first_id", 0) + s["rows"]) for s in base(index))
    assert all(stop <= first for (_, stop), (first, _) in zip(ids, ids[1:], strict=False))


change = st.tuples(
    st.sampled_from(["add", "edit", "delete", "move", "merge", "retrain", "few"]),
    st.integers(0, 2),
    st.integers(2, 9),
)


def changed(files: Files, what: str, which: int, how: int, night: int) -> Files:
    files = {name: list(rows) for name, rows in files.items()}
    name = sorted(files)[which % len(files)]
    rows = files[name]
    if what == "add":
        rows += [(f"{n}+{night}", f"{TOPICS[n % 4]} {n} new") for n in range(3 * how)]
    elif what == "edit":
        rows[:] = [(i, f"{t}!" if n % how == 0 else t) for n, (i, t) in enumerate(rows)]
    elif what == "few":
        rows[how : how + 1] = [(f"x{night}", f"b {night} few")]
    elif what == "delete":
        rows[:] = [row for n, row in enumerate(rows) if n % how]
    elif what == "move":
        files[f"{name}~"] = files.pop(name)[::-1]
    return files


SLOW = [
    pytest.param(factory, marks=pytest.mark.slow)
    for factory in ("IVF8,RaBitQ", "IVF8_HNSW4,Flat", "IVF8,PQ4x4")
]


@pytest.mark.parametrize("factory", ["IVF8,SQ8", *SLOW])
@settings(max_examples=examples(5, few=2), deadline=None)
@given(plan=st.lists(change, min_size=1, max_size=5), metric=st.sampled_from(["ip", "l2"]))
def test_ranges_equal_one_range_over_any_nights(
    factory: str, plan: list[tuple[str, int, int]], metric: str
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MOST_DELTAS", 2)
        one, many = Nights(Path(folder) / "one"), Nights(Path(folder) / "many")
        files = collection()
        request = IndexRequest(factory, metric)
        for night, (what, which, how) in enumerate([("none", 0, 2), *plan]):
            files = changed(files, what, which, how, night)
            if what == "retrain":
                request = IndexRequest(factory, metric, target_recall=0.5 + night / 100)
            for nights, most in ((one, 10**9), (many, SMALL)):
                patch.setattr(choose, "RANGE_BYTES", most)
                nights.commit(files, request, merge=what == "merge")
                assert list(faults(nights.manifest)) == []
                check_layout(nights.index)
            texts = ["a question", "b 3 new", "c 1 0", "d"]
            for k, nprobe in ((1, 1), (7, 3), (30, 8), (500, 8)):
                for text in texts:
                    assert one.search([text], k, nprobe=nprobe) == many.search(
                        [text], k, nprobe=nprobe
                    )
            assert one.index["recall"] == many.index["recall"]
            assert one.index["recall_changed"] == many.index["recall_changed"]
        assert len(base(many.index)) > 1


def test_copies_are_ordered_by_id_in_any_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"f{i}": [(f"{(7 * j) % 31}-{i}", "a text") for j in range(31)] for i in range(2)}
    files["g"] = [(f"g{j}", f"{TOPICS[j % 4]} {j}") for j in range(80)]
    nights = Nights(tmp_path / "store")
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    (found,) = nights.search(["a text"], 5, nprobe=4)
    copies = sorted(name for rows in (files["f0"], files["f1"]) for name, _ in rows)
    assert [name for _, name in found] == copies[:5]


def test_a_merge_that_is_repeated_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", SMALL)
    nights = Nights(tmp_path / "store")
    nights.commit(collection(), IndexRequest("IVF8,SQ8"))
    files = collection()
    files["f9"] = [(f"n{n}", f"{TOPICS[n % 4]} {n} f9") for n in range(30)]
    nights.commit(files)
    files["f8"] = [("one", "b more")]
    run, units = nights.begin(files)
    first = run_steps(run, units, IndexRequest("IVF8,SQ8"))
    again = run_steps(run, units, IndexRequest("IVF8,SQ8"))
    assert first.index.entry == again.index.entry
    assert first.index.entry.change.what == "compacted"


def test_a_merge_writes_the_most_worn_range_and_takes_its_rows_from_deltas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, nights = Nights(tmp_path / "one"), Nights(tmp_path / "store")

    def commit() -> dict[str, Any]:
        for store, most in ((one, 10**9), (nights, SMALL)):
            monkeypatch.setattr(choose, "RANGE_BYTES", most)
            store.commit(files, IndexRequest("IVF8,RaBitQ"))
        return nights.index

    files = collection()
    before = commit()
    files["f1"] = [(i, t if n % 5 else f"c new {n}") for n, (i, t) in enumerate(files["f1"])]
    files["f9"] = [(f"n{n}", f"{TOPICS[n % 4]} {n} f9") for n in range(20)]
    commit()
    files["f8"] = [("one", "b more")]
    after = commit()
    assert after["change"]["why"] == f"the most worn ranges (1 of {len(base(before))})"
    paths = [{s["path"] for s in base(index)} for index in (before, after)]
    assert len(paths[0] & paths[1]) == len(paths[0]) - 1
    (old, new) = [s for s in after["segments"] if s["kind"] == "delta"]
    assert 0 < old["deleted"] < old["rows"]
    assert new["deleted"] == 0
    check_layout(after)
    assert list(faults(nights.manifest)) == []
    # the rows that moved are deleted and edited like all others
    for texts in (["a question", "b more", "c new 5"], ["a question", "d 3 f9 again"]):
        for k, nprobe in ((1, 1), (30, 8), (500, 8)):
            assert nights.search(texts, k, nprobe=nprobe) == one.search(texts, k, nprobe=nprobe)
        assert nights.index["recall"] == one.index["recall"]
        files["f9"] = [(i, f"{t} again") for i, t in files["f9"][::2]]
        commit()


def test_a_night_leaves_the_ranges_it_does_not_touch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", SMALL)
    nights = Nights(tmp_path / "store")
    before = nights.commit(collection(), IndexRequest("IVF8,SQ8"))
    files = collection()
    files["f0"][5] = ("5-0", "a changed text")
    after = nights.commit(files)
    assert [s["path"] for s in base(after)] == [s["path"] for s in base(before)]
    assert sum(s["locator"] != t["locator"] for s, t in zip(base(after), base(before), strict=True))
    vectors = np.array([vector_of("a changed text")])
    assert vectors.shape == (1, 16)
    (found,) = nights.search(["a changed text"], 1, nprobe=8)
    assert found[0][1] == "5-0"


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    if how == "cut":
        del data[len(data) * 2 // 3 :]
    else:
        data[{"header": 60, "list": len(data) // 2, "end": -3}[how]] ^= 8
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("what", "how", "worn"),
    [
        ("path", "header", False),
        ("path", "list", True),
        ("locator", "gone", True),
        ("refine", "cut", True),
        pytest.param("path", "cut", False, marks=pytest.mark.slow),
        pytest.param("path", "cut", True, marks=pytest.mark.slow),
        pytest.param("path", "header", True, marks=pytest.mark.slow),
        pytest.param("path", "list", False, marks=pytest.mark.slow),
        pytest.param("locator", "list", False, marks=pytest.mark.slow),
        pytest.param("locator", "list", True, marks=pytest.mark.slow),
        pytest.param("locator", "gone", False, marks=pytest.mark.slow),
        pytest.param("refine", "list", False, marks=pytest.mark.slow),
        pytest.param("refine", "list", True, marks=pytest.mark.slow),
        pytest.param("refine", "cut", False, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_range_is_made_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, how: str, worn: bool
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", 4 * SMALL)
    nights = Nights(tmp_path / "store")
    files = collection()
    nights.commit(files, IndexRequest("IVF8,RaBitQ"))
    if worn:  # some rows are deleted, others have moved
        files["f1"] = files["f1"][3:][::-1]
        files["g"] = files.pop("f0")
        nights.commit(files)
    before = nights.index
    assert len(base(before)) > 1
    texts = ["a question", "b 3 0"]
    right = nights.search(texts, 30, nprobe=8)
    damaged = base(before)[1]
    named = damaged[what]["path"] if what == "refine" else damaged[what]
    damage(nights.root / named, how)
    (fault, *_) = faults(nights.manifest)
    assert named in fault
    again = nights.commit(files)
    assert list(faults(nights.manifest)) == []
    assert again["change"]["what"] == "repaired"
    assert named in again["change"]["why"]
    assert nights.search(texts, 30, nprobe=8) == right
    assert [s["path"] for s in again["segments"] if s["number"] != damaged["number"]] == [
        s["path"] for s in before["segments"] if s["number"] != damaged["number"]
    ]
    if not worn:
        assert base(again)[1]["path"] == damaged["path"]
    # recall is measured by true neighbours of which some are in the repaired range
    other = Nights(tmp_path / "other")
    other.commit(collection(), IndexRequest("IVF8,RaBitQ"))
    if worn:
        other.commit(files)
    files = {**files, "z": [("z", "d 7 z")]}
    assert nights.commit(files)["recall"] == other.commit(files)["recall"]


def damaging(path: Path) -> Callable[[Any], Any]:
    """The step that decides, which damages a file first."""
    decide = update_decision.decide

    def damaged_first(matches: Any) -> Any:
        damage(path, "list")
        return decide(matches)

    return damaged_first


@pytest.mark.parametrize(
    ("factory", "what"),
    [
        pytest.param("IVF8,SQ8", "path", marks=pytest.mark.slow),
        ("IVF8,RaBitQ", "refine"),
    ],
)
def test_damage_met_while_segments_are_written_has_that_range_alone_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str, what: str
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", SMALL)
    nights, sound = Nights(tmp_path / "store"), Nights(tmp_path / "sound")
    files = collection()
    first = files["f1"]
    for edits in (2, 9, 28):  # the last is enough for a range to be written again
        files["f1"] = [(i, f"a edit {n}" if n < edits else t) for n, (i, t) in enumerate(first)]
        if edits == 28:
            worn = max(base(nights.index), key=lambda s: s["deleted"])
            path = worn[what]["path"] if what == "refine" else worn[what]
            monkeypatch.setattr(update_decision, "decide", damaging(nights.root / path))
        nights.commit(files, IndexRequest(factory))
        monkeypatch.undo()
        monkeypatch.setattr(choose, "RANGE_BYTES", SMALL)
        sound.commit(files, IndexRequest(factory))
    assert nights.index["trained"] == sound.index["trained"]
    assert path in nights.index["change"]["why"]
    assert list(faults(nights.manifest)) == []
    assert nights.index["recall"] == sound.index["recall"]
    for k, nprobe in ((3, 1), (500, 8)):
        assert nights.search(["a question"], k, nprobe=nprobe) == sound.search(
            ["a question"], k, nprobe=nprobe
        )


@pytest.mark.parametrize("what", ["path", "locator"])
def test_two_damaged_ranges_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", SMALL)
    nights = Nights(tmp_path / "store")
    before = nights.commit(collection(), IndexRequest("IVF8,SQ8"))
    for damaged in base(before)[:2]:
        damage(nights.root / damaged[what], "list")
    files = collection()
    files["f1"][3] = ("3-1", "a changed text")
    again = nights.commit(files)
    assert again["change"]["what"] == "followed"
    assert all(damaged[what] in again["change"]["why"] for damaged in base(before)[:2])
    assert list(faults(nights.manifest)) == []


def with_delta(nights: Nights, factory: str) -> Files:
    """Commit an index, and then some rows of a delta; some rows of the delta are deleted."""
    files = collection()
    nights.commit(files, IndexRequest(factory))
    files["d"] = [(f"d{n}", f"{TOPICS[n % 4]} {n} delta") for n in range(12)]
    nights.commit(files)
    files["d"] = files["d"][2:]
    nights.commit(files)
    return files


def delta_of(index: dict[str, Any]) -> dict[str, Any]:
    (found,) = (segment for segment in index["segments"] if segment["kind"] == "delta")
    return found


@pytest.mark.parametrize(
    ("factory", "what", "how", "changes"),
    [
        ("IVF8,SQ8", "locator", "list", True),
        ("IVF8,RaBitQ", "path", "gone", True),
        ("IVF8,RaBitQ", "refine", "list", False),
        pytest.param("IVF8,SQ8", "locator", "gone", False, marks=pytest.mark.slow),
        pytest.param("IVF8,SQ8", "locator", "gone", True, marks=pytest.mark.slow),
        pytest.param("IVF8,SQ8", "path", "list", True, marks=pytest.mark.slow),
        pytest.param("IVF8,SQ8", "path", "cut", False, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_delta_is_made_again_alone(
    tmp_path: Path, factory: str, what: str, how: str, changes: bool
) -> None:
    nights, sound = Nights(tmp_path / "store"), Nights(tmp_path / "sound")
    files = with_delta(nights, factory)
    with_delta(sound, factory)
    damaged = delta_of(nights.index)
    path = damaged[what]["path"] if what == "refine" else damaged[what]
    damage(nights.root / path, how)
    if changes:
        files["d"] = files["d"][1:]
        files["e"] = [("e", "b 3 e")]
        sound.commit(files)
    again = nights.commit(files)
    assert again["trained"] == sound.index["trained"]
    assert again["change"]["what"] == ("followed" if changes else "repaired")
    assert path in again["change"]["why"]
    assert base(again) == base(sound.index)
    assert list(faults(nights.manifest)) == []
    assert again["recall"] == sound.index["recall"]
    for k, nprobe in ((3, 1), (500, 8)):
        assert nights.search(["b 2 delta"], k, nprobe=nprobe) == sound.search(
            ["b 2 delta"], k, nprobe=nprobe
        )
    assert nights.commit(files) == again


def test_a_delta_is_not_made_again_by_a_damaged_quantizer(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    files = with_delta(nights, "IVF8,SQ8")
    damage(nights.root / delta_of(nights.index)["path"], "gone")
    damage(nights.root / nights.index["trained"]["path"], "list")
    assert nights.commit(files)["change"]["what"] == "trained"
    assert list(faults(nights.manifest)) == []


def read_lists(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of ranges of which lists are read from now on, with repeats."""
    read: list[str] = []
    at_hand = MappedRange.at_hand

    def noted(self: MappedRange, header: Any, places: np.ndarray) -> list[np.ndarray]:
        read.extend([self.path] * len(places))
        return at_hand(self, header, places)

    monkeypatch.setattr(MappedRange, "at_hand", noted)
    return read


def test_ranges_are_asked_again_only_where_more_answers_were_deleted_than_they_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", 8 * SMALL)
    nights = Nights(tmp_path / "store")
    files = collection(500)
    before = nights.commit(files, IndexRequest("IVF8,SQ8", target_recall=0.6))
    assert all(segment["answers"] for segment in base(before))
    read = read_lists(monkeypatch)
    files = {**files, "more": [("m", "c more")]}
    after = nights.commit(files)
    nights_of = [dict(files)]
    assert not read
    assert [s["answers"] for s in base(after)] == [s["answers"] for s in base(before)]
    for edited in (range(7, 8), range(4, 150)):
        files["f0"] = [
            (i, f"d changed {i}" if n in edited else text)
            for n, (i, text) in enumerate(files["f0"])
        ]
        nights.commit(files)
        nights_of.append({name: list(rows) for name, rows in files.items()})
        touched = [s for s in base(nights.index) if s["deleted"]]
        assert touched
        if len(edited) == 1:
            assert not read
    assert read
    assert {Path(path).name for path in read} <= {Path(s["path"]).name for s in touched}
    # a store without kept answers measures the same
    other = Nights(tmp_path / "other")
    monkeypatch.setattr(update_segments, "kept_answers", lambda *_: None)
    for rows in (collection(500), *nights_of):
        other.commit(rows, IndexRequest("IVF8,SQ8", target_recall=0.6))
    for name in ("recall", "recall_100", "recall_changed", "queries", "rows"):
        assert other.index[name] == nights.index[name]


@pytest.mark.parametrize("how", ["gone", "list"])
def test_damaged_answers_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(choose, "RANGE_BYTES", SMALL)
    nights = Nights(tmp_path / "store")
    before = nights.commit(collection(), IndexRequest("IVF8,SQ8"))
    named = base(before)[0]["answers"]["path"]
    damage(nights.root / named, how)
    (fault,) = faults(nights.manifest)
    assert named in fault
    files = collection()
    nights.commit({**files, "more": [("m", "c more")]})
    assert list(faults(nights.manifest)) == []
