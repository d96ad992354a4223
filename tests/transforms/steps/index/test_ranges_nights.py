"""An index cut by its lists, over nights, against the same index in one range.

Covers transforms/steps/index/written_ranges.py.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from helpers.nights import Nights, run_steps, vector_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.index.index_spec import RANGE_BYTES
from sentence_beam.transforms.index.range_readers import MappedRange
from sentence_beam.transforms.steps.index import held_out, segments
from sentence_beam.transforms.store.verification import faults

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


def check_layout(index: dict[str, Any], most: int = SMALL) -> None:
    """The ranges are disjoint, in the bytes that a range may have, and alone have lists."""
    assert index["layout"] == "lists"
    bounds = sorted(tuple(segment["lists"]) for segment in base(index))
    for (_, stop), (first, _) in zip(bounds, bounds[1:], strict=False):
        assert stop <= first
    for segment in base(index):
        first, stop = segment["lists"]
        assert segment["bytes"] <= most or stop == first + 1
    assert not any(s.get("lists") for s in index["segments"] if s["kind"] != "base")
    ids = sorted((s.get("first_id", 0), s.get("first_id", 0) + s["rows"]) for s in base(index))
    assert all(stop <= first for (_, stop), (first, _) in zip(ids, ids[1:], strict=False))


change = st.tuples(
    st.sampled_from(["add", "edit", "delete", "move", "retrain", "few"]),
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
        for night, (what, which, how) in enumerate([("none", 0, 2), *plan]):
            files = changed(files, what, which, how, night)
            for nights, most in ((one, RANGE_BYTES), (many, SMALL)):
                request = IndexRequest(factory, metric, range_bytes=most)
                nights.commit(files, request, retrain="asked for" if what == "retrain" else "")
                assert list(faults(nights.manifest)) == []
                check_layout(nights.index, most)
            texts = ["a question", "b 3 new", "c 1 0", "d"]
            for k, nprobe in ((1, 1), (7, 3), (30, 8), (500, 8)):
                for text in texts:
                    assert one.search([text], k, nprobe=nprobe) == many.search(
                        [text], k, nprobe=nprobe
                    )
            assert one.index["recall"] == many.index["recall"]
            assert one.index["recall_changed"] == many.index["recall_changed"]
        assert len(base(many.index)) > 1


def test_copies_are_ordered_by_id_in_any_layout(tmp_path: Path) -> None:
    files = {f"f{i}": [(f"{(7 * j) % 31}-{i}", "a text") for j in range(31)] for i in range(2)}
    files["g"] = [(f"g{j}", f"{TOPICS[j % 4]} {j}") for j in range(80)]
    nights = Nights(tmp_path / "store")
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    (found,) = nights.search(["a text"], 5, nprobe=4)
    copies = sorted(name for rows in (files["f0"], files["f1"]) for name, _ in rows)
    assert [name for _, name in found] == copies[:5]


CUT = IndexRequest("IVF8,SQ8", range_bytes=SMALL)


def test_ranges_that_are_written_again_twice_have_the_same_bytes(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    nights.commit(collection(), CUT)
    files = collection()
    files["f9"] = [(f"n{n}", f"{TOPICS[n % 4]} {n} f9") for n in range(30)]
    run, units = nights.begin(files)
    first = run_steps(run, units, CUT)
    again = run_steps(run, units, CUT)
    assert first.index.entry == again.index.entry
    assert first.index.entry.change.what == "rewritten"


def test_all_ranges_are_written_again_by_their_codes_with_the_rows_of_deltas(
    tmp_path: Path,
) -> None:
    nights = Nights(tmp_path / "store")
    request = IndexRequest("IVF8,RaBitQ", range_bytes=SMALL)
    files = collection()
    before = nights.commit(files, request)
    files["f9"] = [(f"n{n}", f"{TOPICS[n % 4]} {n} f9") for n in range(8)]
    assert nights.commit(files)["change"]["what"] == "followed"
    files["f1"] = files["f1"][:-4]
    files["f8"] = [("one", "b more")]
    after = nights.commit(files)
    assert after["change"]["what"] == "rewritten"
    assert (after["change"]["added"], after["change"]["deleted"]) == (1, 4)
    assert after["trained"] == before["trained"]
    assert not {s["path"] for s in base(before)} & {s["path"] for s in base(after)}
    assert [s["kind"] for s in after["segments"] if s["kind"] != "base"] == ["held-out"]
    assert not any(segment["deleted"] for segment in base(after))
    check_layout(after)
    assert list(faults(nights.manifest)) == []
    # every row has the code that it had, and new ones the code that a new index would give them
    other = Nights(tmp_path / "other")
    other.commit(collection(), IndexRequest("IVF8,RaBitQ"))
    other.commit({**files, "f8": []})
    other.commit(files)
    for k, nprobe in ((1, 1), (30, 8), (500, 8)):
        texts = ["a question", "b more", "d 3 f9"]
        assert nights.search(texts, k, nprobe=nprobe) == other.search(texts, k, nprobe=nprobe)


def test_a_night_leaves_the_ranges_it_does_not_touch(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    before = nights.commit(collection(), CUT)
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
        ("refine", "cut", True),
        pytest.param("path", "cut", False, marks=pytest.mark.slow),
        pytest.param("path", "header", True, marks=pytest.mark.slow),
        pytest.param("locator", "gone", True, marks=pytest.mark.slow),
        pytest.param("locator", "list", False, marks=pytest.mark.slow),
        pytest.param("refine", "list", False, marks=pytest.mark.slow),
    ],
)
def test_an_index_with_a_damaged_range_is_built_again_with_the_same_lists(
    tmp_path: Path, what: str, how: str, worn: bool
) -> None:
    request = IndexRequest("IVF8,RaBitQ", range_bytes=4 * SMALL)
    nights, other = Nights(tmp_path / "store"), Nights(tmp_path / "other")
    files = collection()
    nights.commit(files, request)
    other.commit(files, request)
    if worn:  # some rows are deleted, others have moved
        files["f1"] = files["f1"][3:][::-1]
        files["g"] = files.pop("f0")
        nights.commit(files)
        other.commit(files)
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
    assert again["change"]["what"] == "rewritten"
    assert named in again["change"]["why"]
    assert again["trained"]["sha256"] == before["trained"]["sha256"]
    assert not any(segment["deleted"] for segment in again["segments"])
    assert nights.search(texts, 30, nprobe=8) == right
    # the next night measures with what the build has found
    files = {**files, "z": [("z", "d 7 z")]}
    assert nights.commit(files)["recall"]["value"] == other.commit(files)["recall"]["value"]


def damaging(path: Path) -> Callable[[Any], Any]:
    """The step that decides, which damages a file first."""
    decide = segments.decide

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
def test_damage_met_while_segments_are_written_has_all_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str, what: str
) -> None:
    nights = Nights(tmp_path / "store")
    request = IndexRequest(factory, range_bytes=SMALL)
    files = collection()
    index = nights.commit(files, request)
    first = base(index)[0]
    path = first[what]["path"] if what == "refine" else first[what]
    monkeypatch.setattr(segments, "decide", damaging(nights.root / path))
    files["f1"] = [(i, f"a edit {n}" if n < 28 else t) for n, (i, t) in enumerate(files["f1"])]
    again = nights.commit(files, request)  # so many that all ranges are written again
    assert again["change"]["what"] == "rewritten"
    assert path in again["change"]["why"]
    assert again["trained"]["sha256"] == index["trained"]["sha256"]
    assert list(faults(nights.manifest)) == []
    (found,) = nights.search(["a question"], 500, nprobe=8)
    assert sorted(name for _, name in found) == sorted(
        i for rows in files.values() for i, _ in rows
    )


def with_delta(nights: Nights, factory: str) -> Files:
    """Commit an index, and then some rows of a delta; some rows of the delta are deleted."""
    files = collection()
    nights.commit(files, IndexRequest(factory))
    files["d"] = [(f"d{n}", f"{TOPICS[n % 4]} {n} delta") for n in range(8)]
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
        ("IVF8,RaBitQ", "refine", "list", False),
        pytest.param("IVF8,RaBitQ", "path", "gone", True, marks=pytest.mark.slow),
        pytest.param("IVF8,SQ8", "locator", "gone", False, marks=pytest.mark.slow),
        pytest.param("IVF8,SQ8", "path", "cut", False, marks=pytest.mark.slow),
    ],
)
def test_an_index_with_a_damaged_delta_is_built_again(
    tmp_path: Path, factory: str, what: str, how: str, changes: bool
) -> None:
    nights = Nights(tmp_path / "store")
    files = with_delta(nights, factory)
    damaged = delta_of(nights.index)
    path = damaged[what]["path"] if what == "refine" else damaged[what]
    damage(nights.root / path, how)
    if changes:
        files["d"] = files["d"][1:]
        files["e"] = [("e", "b 3 e")]
    again = nights.commit(files)
    assert again["change"]["what"] == "rewritten"
    assert path in again["change"]["why"]
    assert {segment["kind"] for segment in again["segments"]} == {"base", "held-out"}
    assert list(faults(nights.manifest)) == []
    (found,) = nights.search(["b 2 delta"], 500, nprobe=8)
    assert sorted(name for _, name in found) == sorted(
        i for rows in files.values() for i, _ in rows
    )
    assert nights.commit(files) == again


def test_an_index_is_not_built_again_by_a_damaged_quantizer(tmp_path: Path) -> None:
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


def test_recall_is_measured_without_reading_ranges_until_many_answers_were_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_WORN", 0.5)
    nights = Nights(tmp_path / "store")
    request = IndexRequest("IVF8,SQ8", target_recall=0.6, range_bytes=8 * SMALL)
    files = collection(500)
    first = nights.commit(files, request)
    read = read_lists(monkeypatch)
    files = {**files, "more": [("m", "c more")]}
    assert nights.commit(files)["recall"]["queries"] == first["recall"]["queries"]
    for edited in (range(7, 8), range(4, 40)):
        files["f0"] = [
            (i, f"d changed {i}" if n in edited else text)
            for n, (i, text) in enumerate(files["f0"])
        ]
        after = nights.commit(files)
    assert not read
    # another store, which knows nothing of its queries, measures the same
    other = Nights(tmp_path / "other")
    other.commit(collection(500), request)
    whole = held_out.KnownQueries.from_bytes

    def forgotten(data: bytes) -> held_out.KnownQueries:
        known = whole(data)
        return replace(known.of(np.array([], np.int64)), sizes=known.sizes)

    monkeypatch.setattr(held_out.KnownQueries, "from_bytes", forgotten)
    again = other.commit(files)
    assert again["recall"]["queries"] >= after["recall"]["queries"]
    assert again["recall"]["value"] == pytest.approx(after["recall"]["value"], abs=0.01)
