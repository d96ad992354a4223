"""An index that follows its store from night to night: what it finds, what it rewrites, what it
reads.

Covers transforms/steps/index/decisions.py.
Covers transforms/steps/index/index_folder.py.
Covers transforms/steps/index/held_out.py.
Covers transforms/steps/index/index_recall.py.
Covers transforms/steps/index/update_rows.py.
Covers transforms/steps/index/update.py.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers import fake_storage
from helpers.examples import examples
from helpers.index_data import build_segment
from helpers.nights import DIM, Nights, nearest, run_steps, space_of, vector_of
from helpers.settled import settled
from helpers.snapshots import units_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index import (
    SegmentedIndex,
    SegmentFile,
    TrainedIndex,
    flat_segment,
    upkeep,
)
from sentence_beam.transforms.index.exact import exact_search
from sentence_beam.transforms.index.range_readers import RangeFile
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.commit.commit_run import commit_run
from sentence_beam.transforms.steps.index import held_out, matching, segments
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.verification import faults

pytest.importorskip("faiss")

Rows = dict[str, list[tuple[str, str]]]
TOPICS = "abcdefgh"


def collection(files: int = 4, rows: int = 100) -> Rows:
    """Rows of eight topics, the same for every call."""
    return {
        f"f{i}": [(f"{i}-{j}", f"{TOPICS[j % 8]} {i} {j}") for j in range(rows)]
        for i in range(files)
    }


def edited(files: Rows, every: int, night: int = 0) -> Rows:
    """The same with one row in `every` of another text."""
    return {
        name: [
            (i, f"{text} night {night}" if n % every == night % every else text)
            for n, (i, text) in enumerate(rows)
        ]
        for name, rows in files.items()
    }


def without(files: Rows, ids: set[str]) -> Rows:
    return {name: [row for row in rows if row[0] not in ids] for name, rows in files.items()}


def all_ids(files: Rows) -> list[str]:
    return sorted(i for rows in files.values() for i, _ in rows)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


def kinds(index: dict[str, Any]) -> list[str]:
    return [segment["kind"] for segment in index["segments"]]


def check_found(nights: Nights, files: Rows, everywhere: bool = True) -> None:
    """Every row and no other is found, the k nearest are those of brute force, and the store is
    whole.
    """
    assert list(faults(nights.manifest)) == []
    assert nights.index["rows"] == len(all_ids(files))
    probes = {"nprobe": 64, "rerank": 0} if everywhere else {}
    (rows,) = nights.search(["a question"], len(all_ids(files)) + 3, **probes)
    assert sorted(i for _, i in rows) == all_ids(files)
    if not nights.index["factory"].endswith("Flat"):
        return
    for text in ("a question", "b question", "h 0 7"):
        (rows,) = nights.search([text], 5, **probes)
        np.testing.assert_allclose([score for score, _ in rows], nearest(files, text, 5), atol=1e-6)


# --- any sequence of nights

texts = st.integers(0, 25).map(lambda n: f"{TOPICS[n % 8]} {n}")
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.lists(texts, min_size=1, max_size=12)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("edit"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("move"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("rename"), st.integers(0, 3), st.just(0)),
    ),
    max_size=4,
)


def changed(files: Rows, night: list[Any], number: int) -> Rows:
    """The rows after some changes; new rows have new ids."""
    files = {name: list(rows) for name, rows in files.items()}
    for place, (what, which, how) in enumerate(night):
        name = sorted(files)[which % len(files)]
        rows = files[name]
        if what == "add":
            rows.extend((f"n{number}.{place}.{n}", text) for n, text in enumerate(how))
        elif what == "drop":
            files[name] = [row for n, row in enumerate(rows) if n % (how + 1)]
        elif what == "edit":
            files[name] = [(i, f"{t}!" if n % how == 0 else t) for n, (i, t) in enumerate(rows)]
        elif what == "move":
            other = sorted(files)[how % len(files)]
            files[other] = [*files[other], *files.pop(name)] if other != name else rows[::-1]
        else:
            files[f"{name}r{number}.{place}"] = files.pop(name)
    return files


@pytest.mark.parametrize(
    "index",
    [
        "IVF4,SQ8",
        pytest.param("Flat", marks=pytest.mark.slow),
        pytest.param("IVF4,Flat", marks=pytest.mark.slow),
    ],
)
@settings(max_examples=examples(16, few=4), deadline=None)
@given(plan=st.lists(changes, min_size=1, max_size=4), buckets=st.sampled_from([10, 2_000_000]))
def test_after_any_nights_exactly_the_rows_of_the_last_one_are_found(
    index: str, plan: list[list[Any]], buckets: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "BUCKET_ROWS", buckets)
        nights, files, past = Nights(Path(folder) / "store"), collection(4, 12), []
        nights.commit(files, IndexRequest(index))
        for number, night in enumerate(plan):
            past.append((nights.manifest.run, all_ids(files)))
            files = changed(files, night, number)
            if not any(files.values()):
                return
            nights.commit(files)
            check_found(nights, files)
        for run, ids in past:  # older snapshots still answer for the rows they had
            (rows,) = nights.search(["a question"], 999, run=run, nprobe=64)
            assert sorted(i for _, i in rows) == ids


@pytest.mark.parametrize(
    ("factory", "metric"),
    [
        ("IVF4,SQ8", "ip"),
        ("IVF4,RaBitQ", "l2"),
        pytest.param("IVF4,SQ8", "l2", marks=pytest.mark.slow),
        pytest.param("IVF4,RaBitQ", "ip", marks=pytest.mark.slow),
        pytest.param("SQ8", "ip", marks=pytest.mark.slow),
        pytest.param("SQ8", "l2", marks=pytest.mark.slow),
    ],
)
def test_it_answers_as_one_index_built_of_the_live_rows(
    nights: Nights, factory: str, metric: str
) -> None:
    files = collection()
    nights.commit(files, IndexRequest(factory, metric))
    for night in range(3):
        files = edited(without(files, {f"0-{night}", f"3-{night}"}), 30, night)
        nights.commit(files)
    assert kinds(nights.index).count("delta") > 1 or "base" in kinds(nights.index)[1:]
    index, queries = (
        nights.index,
        np.array([vector_of(f"{t} question {n}") for t in TOPICS for n in range(4)]),
    )
    trained = (nights.root / index["trained"]["path"]).read_bytes()
    live: dict[bool, list[str]] = {True: [], False: []}
    opened, where = [], []
    by_hash = {h: text for rows in files.values() for _, text in rows for h in row_hashes([text])}
    for segment in index["segments"]:
        table = locators.from_bytes((nights.root / segment["locator"]).read_bytes())
        keep = locators.find_live_rows(table)
        opened.append(file_of(nights, segment, keep))
        found = [
            by_hash.get(h) if keep is None or keep[n] else None
            for n, h in enumerate(table["row_hash"].to_pylist())
        ]
        where.append(found)
        live[segment["kind"] == "held-out"] += [text for text in found if text is not None]
    one = [SegmentFile(nights.root / "one"), SegmentFile(nights.root / "held")]
    vectors = {held: np.array([vector_of(text) for text in live[held]]) for held in live}
    (nights.root / "one").write_bytes(build_segment(trained, [vectors[False]]))
    (nights.root / "held").write_bytes(flat_segment([vectors[True]], DIM, metric))
    for nprobe in (1, 2, 4):
        many = SegmentedIndex.open(opened, TrainedIndex.from_bytes(trained)).search(
            queries, 10, nprobe=nprobe
        )
        single = SegmentedIndex.open(one, TrainedIndex.from_bytes(trained)).search(
            queries, 10, nprobe=nprobe
        )
        np.testing.assert_array_equal(many.scores, single.scores)
        mine = [
            [where[s][r] for s, r in zip(*hit, strict=True)]
            for hit in zip(many.segment, many.row, strict=True)
        ]
        theirs = [
            [live[s == 1][r] for s, r in zip(*hit, strict=True)]
            for hit in zip(single.segment, single.row, strict=True)
        ]
        assert mine == theirs


# --- what a night writes and reads


def test_a_night_adds_a_delta_nulls_what_went_and_leaves_segments_as_they_are(
    nights: Nights,
) -> None:
    files = collection()
    before = nights.commit(files, IndexRequest("IVF4,SQ8"))
    stood = {path: path.read_bytes() for path in (nights.root / "index").iterdir()}
    files = edited(without(files, {"0-0", "0-1"}), 50)
    after = nights.commit(files)
    assert all(path.read_bytes() == data for path, data in stood.items())
    assert after["change"] == {
        "what": "followed",
        "why": "",
        "added": 8,
        "deleted": 10,
        "moved": 390,
    }
    base, delta = before["segments"][0], next(s for s in after["segments"] if s["kind"] == "delta")
    kept = next(s for s in after["segments"] if s["number"] == base["number"])
    assert (kept["path"], kept["sha256"]) == (base["path"], base["sha256"])
    assert kept["locator"] != base["locator"]
    old, new = (
        locators.from_bytes((nights.root / s["locator"]).read_bytes()).to_pylist()
        for s in (base, kept)
    )
    for was, now in zip(old, new, strict=True):
        assert (was["id"], was["row_hash"]) == (now["id"], now["row_hash"])
    assert kept["deleted"] == sum(row["shard"] is None for row in new)
    held = [
        sum(s["rows"] - s["deleted"] for s in i["segments"] if s["kind"] == "held-out")
        for i in (before, after)
    ]
    assert delta["rows"] + held[1] - held[0] == 8 - 10 + kept["deleted"]
    assert after["trained"] == before["trained"]


def test_an_unchanged_night_changes_nothing_and_reads_no_shard(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = collection()
    before = nights.commit(files, IndexRequest("IVF4,SQ8"))
    stood = sorted((nights.root / "index").iterdir())
    opened = watched(monkeypatch)
    assert nights.commit(files) == before
    assert sorted((nights.root / "index").iterdir()) == stood
    assert not opened


def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards that are opened from now on."""
    from sentence_beam.transforms.store.shards import shard_reading

    opened: list[str] = []
    original = shard_reading.open_shard

    def open_shard(path: str, *args: Any, **options: Any) -> Any:
        opened.append(path)
        return original(path, *args, **options)

    monkeypatch.setattr(shard_reading, "open_shard", open_shard)
    return opened


def test_carried_shards_are_not_read_and_untouched_locators_not_written(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = collection()
    before = nights.commit(files, IndexRequest("IVF4,SQ8"))
    opened = watched(monkeypatch)
    after = nights.commit({**files, "new": [(f"new-{n}", f"c new {n}") for n in range(9)]})
    assert {Path(path).name.partition("-")[0] for path in opened} == {
        Path(unit["path"]).name.partition("-")[0]
        for unit in units_of(nights.root)
        if unit["file"] == "new"
    }
    assert after["change"]["added"] == 9
    assert after["segments"][0] == before["segments"][0]


def test_rows_whose_shard_was_rewritten_are_followed_even_under_another_id(nights: Nights) -> None:
    files = collection()
    before = nights.commit(files, IndexRequest("IVF4,SQ8"))
    files["f9"] = [(f"other-{i}", text) for i, text in files.pop("f1")][::-1]
    after = nights.commit(files)
    assert after["change"] == {
        "what": "followed",
        "why": "",
        "added": 0,
        "deleted": 0,
        "moved": 100,
    }
    assert [s["path"] for s in after["segments"]] == [s["path"] for s in before["segments"]]
    check_found(nights, files)


def test_a_shard_that_only_changes_its_place_in_the_corpus_costs_no_segment(nights: Nights) -> None:
    files = collection()
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    after = nights.commit({name: rows[::-1] for name, rows in files.items()})
    assert (after["change"]["moved"], kinds(after)) == (400, ["base", "held-out"])
    check_found(nights, files)


# --- held-out rows and recall


def held_out_texts(nights: Nights) -> set[bytes]:
    found = [s for s in nights.index["segments"] if s["kind"] == "held-out"]
    tables = [locators.from_bytes((nights.root / s["locator"]).read_bytes()) for s in found]
    return {
        row["row_hash"] for table in tables for row in table.to_pylist() if row["shard"] is not None
    }


def test_the_held_out_texts_stay_the_same_and_new_ones_join_them(nights: Nights) -> None:
    files = collection(rows=300)
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    before = held_out_texts(nights)
    new = {**files, "new": [(f"new-{n}", f"c new {n}") for n in range(100)]}
    nights.commit(new)
    assert held_out_texts(nights) > before
    nights.commit(files)
    assert held_out_texts(nights) == before
    nights.commit({name: rows[:150] for name, rows in files.items()})
    assert held_out_texts(nights) < before


def test_a_held_out_text_with_many_new_copies_goes_to_the_lists(nights: Nights) -> None:
    files = collection(rows=300)
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    text = next(
        t
        for rows in files.values()
        for _, t in rows
        if row_hashes([t])[0] in held_out_texts(nights)
    )
    files["copies"] = [(f"copy-{n}", text) for n in range(held_out.COPIES_HELD_OUT)]
    index = nights.commit(files)
    assert index["change"]["added"] == held_out.COPIES_HELD_OUT
    assert (
        next(s for s in index["segments"] if s["kind"] == "delta")["rows"]
        == held_out.COPIES_HELD_OUT
    )
    files["more"] = [("more-0", text)]
    nights.commit(files)
    check_found(nights, files)
    assert row_hashes([text])[0] not in queries_of(nights)[0]


def file_of(
    nights: Nights, segment: dict[str, Any], keep: np.ndarray | None
) -> SegmentFile | RangeFile:
    """A segment or a range to open."""
    path = nights.root / segment["path"]
    return RangeFile.local(path, keep) if "lists" in segment else SegmentFile(path, keep)


def queries_of(nights: Nights) -> tuple[list[bytes], held_out.KnownQueries]:
    known = held_out.KnownQueries.from_bytes(
        (nights.root / nights.index["queries"]["path"]).read_bytes()
    )
    return [bytes(text) for text in known.texts], known


def recount(nights: Nights, files: Rows, only: set[str] | None = None) -> tuple[float, int]:
    """Recall of the index as it stands by the texts it is reported on, over all or over some
    ids.
    """
    listed = [s for s in nights.index["segments"] if s["kind"] != "held-out"]
    tables = [locators.from_bytes((nights.root / s["locator"]).read_bytes()) for s in listed]
    by_hash = {h: text for rows in files.values() for _, text in rows for h in row_hashes([text])}
    index = SegmentedIndex.open(
        [
            file_of(nights, s, locators.find_live_rows(t))
            for s, t in zip(listed, tables, strict=True)
        ],
        TrainedIndex.open(nights.root / nights.index["trained"]["path"]),
    )
    rows = [
        (row["id"], by_hash[row["row_hash"]])
        for t in tables
        for row in t.to_pylist()
        if row["shard"] is not None
    ]
    vectors = np.array([vector_of(text) for _, text in rows])
    shares = []
    for text in queries_of(nights)[0]:
        query = vector_of(by_hash[text])[None]
        true = {rows[n][0] for n in exact_search([(vectors, 0)], query, 10, "ip")[1][0]}
        hit = index.search(query, 10, nprobe=nights.index["nprobe"])
        found = {
            tables[s]["id"][int(r)].as_py() for s, r in zip(hit.segment[0], hit.row[0], strict=True)
        }
        true &= only if only is not None else true
        if true:
            shares.append(len(true & found) / len(true))
    return float(np.mean(shares)), len(shares)


def test_recall_is_measured_again_over_all_rows_and_over_those_that_came(nights: Nights) -> None:
    files = collection(rows=400)
    nights.commit(files, IndexRequest("IVF16,SQ8", target_recall=0.6))
    assert nights.index["recall_changed"] is None
    for night in range(2):
        changed_ids = {
            i
            for rows in edited(files, 25, night).values()
            for i, t in rows
            if t.endswith(f"night {night}")
        }
        files = edited(files, 25, night)
        index = nights.commit(files)
        assert index["change"]["what"] == ("followed" if night == 0 else "rewritten")
        value, queries = recount(nights, files)
        assert index["recall"]["value"] == pytest.approx(value, abs=1e-6)
        assert index["recall"]["queries"] == queries
        value, queries = recount(nights, files, changed_ids)
        assert index["recall_changed"]["value"] == pytest.approx(value, abs=1e-6)
        assert index["recall_changed"]["queries"] == queries
        assert index["recall_changed"]["low"] <= value <= index["recall_changed"]["high"]


def test_new_held_out_texts_are_measured_with_when_they_have_become_many(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = collection(rows=300)
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    before = len(queries_of(nights)[0])
    files |= {
        f"new{i}": [(f"n{i}-{n}", f"{TOPICS[n % 8]} new {i} {n}") for n in range(200)]
        for i in range(2)
    }
    nights.commit(files)
    assert len(queries_of(nights)[0]) <= before
    opened = watched(monkeypatch)
    files["last"] = [("last", "c last")]
    index = nights.commit(files)
    assert len(opened) > len(files)  # all rows were read for them, this once
    assert len(queries_of(nights)[0]) > before + 10
    value, queries = recount(nights, files)
    assert (index["recall"]["value"], index["recall"]["queries"]) == (
        pytest.approx(value, abs=1e-6),
        queries,
    )
    opened.clear()
    nights.commit({**files, "once more": [("m", "d last")]})
    assert len(set(opened)) == 1


# --- compaction and training anew


def test_deltas_are_joined_by_copying_codes_when_they_are_many(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_DELTAS", 3)
    files = collection(rows=200)
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    for night in range(3):
        files[f"n{night}"] = [(f"n{night}-{n}", f"c {night} {n}") for n in range(8)]
        index = nights.commit(files)
    assert kinds(index).count("delta") == 3
    opened = watched(monkeypatch)
    files["n3"] = [(f"n3-{n}", f"c 3 {n}") for n in range(8)]
    index = nights.commit(files)
    assert (index["change"]["what"], index["change"]["why"]) == ("followed", "4 deltas became one")
    assert sorted(kinds(index)) == ["base", "delta", "held-out"]
    assert len(set(opened)) == 1  # codes were copied
    check_found(nights, files)
    value, queries = recount(nights, files)
    assert (index["recall"]["value"], index["recall"]["queries"]) == (
        pytest.approx(value, abs=1e-6),
        queries,
    )


def test_deleted_rows_leave_when_they_are_many(nights: Nights) -> None:
    files = collection(rows=200)
    first = nights.commit(files, IndexRequest("IVF4,SQ8"))
    files = {name: rows[50:] for name, rows in files.items()}
    index = nights.commit(files)
    assert (index["change"]["what"], index["change"]["why"]) == ("rewritten", "25 % deleted")
    assert [s["deleted"] for s in index["segments"] if s["kind"] == "base"] == [0]
    assert index["trained"] == first["trained"]
    check_found(nights, files)


def test_one_large_night_is_a_base_segment_of_its_own(nights: Nights) -> None:
    files = collection(rows=100)
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    files |= {f"n{i}": rows for i, rows in enumerate(collection(8, 50).values())}
    files = {
        name: [(f"{name} {i}", f"{text} {name}") for i, text in rows]
        for name, rows in files.items()
    }
    index = nights.commit(files)
    assert kinds(index).count("delta") == 0
    check_found(nights, files)


def rebuilt(
    nights: Nights, files: Rows, why: str, request: IndexRequest | None = None
) -> dict[str, Any]:
    """The index of a night on which a new one is trained, for this reason."""
    index = nights.commit(files, request)
    assert index["change"]["what"] == "trained"
    assert why in index["change"]["why"]
    check_found(nights, files)
    return index


def test_four_times_the_rows_or_a_quarter_train_anew(nights: Nights) -> None:
    small = collection(rows=20)
    nights.commit(small, IndexRequest("IVF4,SQ8"))
    large = collection(rows=90)
    rebuilt(nights, large, "360 rows, 80 when it was trained")
    rebuilt(nights, small, "80 rows, 360 when it was trained")


def test_a_new_topic_that_the_lists_do_not_know_trains_anew(nights: Nights) -> None:
    files = collection(rows=100)
    nights.commit(files, IndexRequest("IVF8,SQ8"))
    new = {
        f"z{i}": [(f"z{i}-{n}", f"{'zyxw'[n % 4]} {i} {n}") for n in range(100)] for i in range(4)
    }
    index = rebuilt(nights, files | new, "when it was trained")
    assert index["recall"] is not None
    assert not list((nights.root / "runs" / "run2").glob("update-*"))
    assert not list((nights.root / "runs" / "run2").glob("index-*"))


def test_recall_that_fell_trains_anew(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    files = collection(rows=200)
    nights.commit(files, IndexRequest("IVF8,SQ8", target_recall=0.7))
    monkeypatch.setattr(upkeep, "has_fallen", lambda then, now, high: 0.5 < now < high)
    rebuilt(nights, edited(files, 40), "recall ")


@pytest.mark.parametrize(
    "request_",
    [
        IndexRequest("IVF8,SQ8"),
        IndexRequest("IVF4,SQ8", "l2"),
        IndexRequest("IVF4,SQ8", target_recall=0.8),
    ],
)
def test_another_index_is_built_of_the_vectors_that_stand(
    nights: Nights, request_: IndexRequest
) -> None:
    files = collection()
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    rebuilt(nights, files, "another index was asked for", request_)


def test_another_space_builds_anew(nights: Nights) -> None:
    files = collection()
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    other = space_of()
    nights.space = type(other)(**{**vars(other), "truncate_dim": 16})
    rebuilt(nights, files, "another space")


def test_auto_leaves_flat_when_the_rows_are_many(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_beam.transforms.index import index_kinds

    files = collection(rows=100)
    assert nights.commit(files, IndexRequest("auto"))["factory"] == "Flat"
    monkeypatch.setattr(index_kinds, "FLAT_BELOW", 410)
    files["new"] = [(f"n{n}", f"c new {n}") for n in range(9)]
    assert nights.commit(files)["factory"] == "Flat"
    files["more"] = [("m", "c more")]
    assert rebuilt(nights, files, "Flat is for less than")["factory"].startswith("IVF")


def test_an_earlier_snapshot_s_index_is_followed_over_nights_without_one(nights: Nights) -> None:
    files = collection()
    before = nights.commit(files, IndexRequest("IVF4,SQ8"))
    for night in range(2):
        files = edited(files, 50, night)
        nights.commit_without_index(files)
    index = nights.commit(files, IndexRequest("IVF4,SQ8"))
    assert (index["change"]["what"], index["change"]["added"]) == ("followed", 16)
    assert index["segments"][0]["path"] == before["segments"][0]["path"]
    check_found(nights, files)


# --- training that was asked for


def test_training_that_was_asked_for_reads_all_rows_though_nothing_changed(nights: Nights) -> None:
    files = collection(rows=200)
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    files["n"] = [(f"n-{n}", f"c {n}") for n in range(8)]
    assert kinds(nights.commit(files)).count("delta") == 1
    index = nights.commit(files, retrain="asked for")
    assert (index["change"]["what"], index["change"]["why"]) == ("trained", "asked for")
    assert index["trained"]["times"] == 2
    assert sorted(kinds(index)) == ["base", "held-out"]
    check_found(nights, files)
    assert nights.commit(files) == index


def test_other_bytes_of_a_range_are_no_reason_to_train_again(nights: Nights) -> None:
    request = IndexRequest("IVF4,SQ8", target_recall=0.6, range_bytes=2000)
    index = nights.commit(collection(rows=200), request)
    assert index["request"]["range_bytes"] == 2000
    assert nights.manifest.index.request == request
    plain = IndexRequest("IVF4,SQ8", target_recall=0.6)
    assert "range_bytes" not in plain.to_json()
    assert nights.commit(collection(rows=200), plain)["segments"] == index["segments"]


# --- damage, retries, repeats


DAMAGES = [
    (what, how)
    for what in ("locator", "path", "trained", "queries")
    for how in ("gone", "cut", "changed")
]
TOLD = {("locator", "gone"), ("path", "changed"), ("trained", "cut"), ("queries", "changed")}


@pytest.mark.parametrize(
    ("what", "how"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case not in TOLD else []) for case in DAMAGES],
)
def test_a_damaged_index_is_built_again(nights: Nights, what: str, how: str) -> None:
    files = collection()
    index = nights.commit(files, IndexRequest("IVF4,SQ8"))
    path = nights.root / (index[what]["path"] if what in index else index["segments"][0][what])
    data = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(
            data[:-9] if how == "cut" else data[:50] + bytes([data[50] ^ 1]) + data[51:]
        )
    night = edited(files, 50)
    run, units = nights.begin(night)
    record = run_steps(run, units, IndexRequest("IVF4,SQ8"))
    assert record.index.entry.change.what == ("trained" if what == "trained" else "rewritten")
    assert path.name in record.index.entry.change.why
    commit_run([settled(run, units), record], run)
    check_found(nights, night)


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 16
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "held_out_too"),
    [
        (0.1, False),
        (0.9, True),
        pytest.param(0.9, False, marks=pytest.mark.slow),
        pytest.param(0.1, True, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_segment_is_not_copied_into_a_new_one(
    nights: Nights, at: float, held_out_too: bool
) -> None:
    files = collection()
    index = nights.commit(files, IndexRequest("IVF4,SQ8"))
    damaged = next(s for s in index["segments"] if (s["kind"] == "held-out") == held_out_too)
    flip(nights.root / damaged["path"], at)
    files = {name: rows[30:] for name, rows in files.items()}
    files["n"] = [
        (f"n-{n}", f"{TOPICS[n % 8]} n {n}") for n in range(400)
    ]  # some held out: both segments are rewritten
    index = nights.commit(files)
    assert index["change"]["what"] == "rewritten"
    assert damaged["path"] in index["change"]["why"]
    check_found(nights, files)


@pytest.mark.parametrize(
    ("index", "what"),
    [
        ("IVF4,SQ8", "locator"),
        ("IVF4,SQ8", "path"),
        ("IVF4,SQ8", "trained"),
        ("Flat", "queries"),
        pytest.param("IVF4,SQ8", "queries", marks=pytest.mark.slow),
        pytest.param("Flat", "locator", marks=pytest.mark.slow),
        pytest.param("Flat", "path", marks=pytest.mark.slow),
        pytest.param("Flat", "trained", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_file_of_an_index_of_unchanged_rows_is_made_again(
    nights: Nights, what: str, index: str
) -> None:
    files = collection()
    made = nights.commit(files, IndexRequest(index))
    path = nights.root / (made[what]["path"] if what in made else made["segments"][0][what])
    whole = path.read_bytes()
    for _ in range(2):
        flip(path, 0.5)
        again = nights.commit(files)
        assert path.name in again["change"]["why"]
        assert again["change"]["what"] == ("trained" if what == "trained" else "rewritten")
        assert path.read_bytes() == whole
        assert again != made  # so that a line tells of it
        made = again
        check_found(nights, files)
    assert nights.commit(files) == made


def test_a_damaged_copy_of_a_remote_file_is_to_be_removed(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment of a remote store is copied for search once, and checked again where it is read."""

    def cached(path: str, sha256: str) -> str:
        copy = tmp_path / "cache" / Path(path).name
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(Path(path).read_bytes())
        return str(copy)

    monkeypatch.setattr("sentence_beam.transforms.search.opened.cache_file", cached)
    index = nights.commit(collection(), IndexRequest("IVF4,SQ8"))
    right = nights.search(["a question"], 5, nprobe=4)
    copy = tmp_path / "cache" / Path(index["segments"][0]["path"]).name
    flip(copy, 0.5)
    with pytest.raises(DamagedIndexError, match=rf"{copy} was changed .*; it is a copy: remove it"):
        nights.search(["a question"], 5, nprobe=4)
    copy.unlink()
    assert nights.search(["a question"], 5, nprobe=4) == right


def test_what_the_storage_says_of_a_file_spares_reading_it(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on object storage, which knows a checksum of each file."""
    from sentence_beam.transforms import storage

    def stat(call: Callable[[str], storage.Entry | None], path: str) -> storage.Entry | None:
        entry = call(path)
        return entry and replace(entry, checksum=hashlib.md5(Path(path).read_bytes()).hexdigest())

    fake_storage.replace_call(monkeypatch, "stat", stat)
    files = collection()
    index = nights.commit(files, IndexRequest("IVF4,SQ8"))
    read: list[str] = []
    sha256_of = storage.sha256_of
    monkeypatch.setattr(storage, "sha256_of", lambda path: read.append(path) or sha256_of(path))
    assert nights.commit(files) == index
    assert not [
        path for path in read if any(segment["path"] in path for segment in index["segments"])
    ]
    damaged = nights.root / index["segments"][0]["path"]
    flip(damaged, 0.5)
    assert damaged.name in nights.commit(files)["change"]["why"]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param([], id="once", marks=pytest.mark.slow),
        pytest.param(["--direct_runner_bundle_repeat=1"], id="every bundle twice"),
    ],
)
def test_a_pipeline_gives_what_the_steps_give(
    nights: Nights, tmp_path: Path, flags: list[str]
) -> None:
    other, files = Nights(tmp_path / "other"), collection(rows=200)
    for night in range(3):
        changes_ = edited(files, 50, night) if night else files
        changes_ |= (
            {f"z{n}": [(f"{n} {i}", f"z {n} {i}") for i in range(300)] for n in range(2)}
            if night == 2
            else {}
        )
        mine = nights.commit(changes_, IndexRequest("IVF4,SQ8"))
        with_pipeline = beam.Pipeline("FnApiRunner", options=PipelineOptions(flags))
        assert other.commit(changes_, IndexRequest("IVF4,SQ8"), pipeline=with_pipeline) == mine
        files = changes_
        left = {path.name for path in (other.root / "runs" / f"run{night + 1}").iterdir()}
        changed = {name for name in left if name.startswith("changes-")}
        assert left - changed == {"plan.parquet", "result.json"}
        assert bool(changed) == (night > 0)
    assert mine["change"]["what"] == "trained"
    assert {p.name: digest(p) for p in (nights.root / "index").iterdir()} == {
        p.name: digest(p) for p in (other.root / "index").iterdir()
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_steps_that_broke_off_are_taken_up(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:

    files = collection()
    nights.commit(files, IndexRequest("IVF4,SQ8"))
    run, units = nights.begin(edited(files, 50))
    original = segments.build
    works = iter([True, False])

    def broken(*work: Any) -> Any:
        built = original(*work)
        if not next(works, True):
            raise RuntimeError("the machine went away")
        return built

    with monkeypatch.context() as patch:
        patch.setattr(segments, "build", broken)
        with pytest.raises(RuntimeError):
            run_steps(run, units, IndexRequest("IVF4,SQ8"))
    again = run_steps(run, units, IndexRequest("IVF4,SQ8"))
    fresh = run_steps(*_renamed(nights, run, units), IndexRequest("IVF4,SQ8"))
    assert again.index.entry == fresh.index.entry


def _renamed(nights: Nights, run: Any, units: Any) -> Iterator[Any]:
    """The same night as another run."""

    from sentence_beam.transforms.storage import read_bytes, storage_of

    plan = read_bytes(f"{nights.root}/runs/{run.id}/plan.parquet")
    storage_of(run.root).put_if_absent(f"{nights.root}/runs/again/plan.parquet", plan)
    return iter((replace(run, id="again"), units))
