"""Stores as earlier versions wrote them: read, searched, checked, carried over and brought up to
date.
"""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pyarrow.parquet as pq
import pytest
from helpers.commands import Outcome, Run, runner
from helpers.corpora import check_ledger, files_in, rows_of
from helpers.variants import variants

from sentence_beam.transforms.store import open_store

pytestmark = pytest.mark.usefixtures("plain_beam")
FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ["0_1_0"]
# processors differ in a vector's last bits; the scores of neighbouring ranks are farther apart
CLOSE = 1e-5
ONE_MORE = "the small dog is riding a blue horse"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""
    return runner(capfd)


@pytest.fixture(params=VERSIONS)
def earlier(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of a version's fixture: `input`, the stores, and the hub's cache with their model."""
    folder = shutil.copytree(FIXTURES / request.param, tmp_path / "earlier")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    return folder


@pytest.fixture(params=["file", "content"])
def store(request: pytest.FixtureRequest, earlier: Path) -> Path:
    """A store of that version."""
    return earlier / request.param


@pytest.fixture
def answers(store: Path) -> dict[str, Any]:
    """What that version's own commands said of the store."""
    return json.loads(store.with_suffix(".json").read_text())


def embed(run: Run, store: Path, *options: object) -> Outcome:
    """`embed` with the options that the store remembers, over the input of the fixture."""
    return run("embed", "--input", store.parent / "input" / "*", "--store", store, *options).ok()


def test_what_it_is_can_be_shown(run: Run, store: Path) -> None:
    found = json.loads(run("info", "--store", store, "--json").ok().out)
    assert (found["format"], found["faults"]) == (1, [])
    assert found["rows"]["written"] == len(open_store(str(store)))
    assert found["last_run"]["status"] == "committed"
    assert {"id", "embedding"} <= {column["name"] for column in found["columns"]}
    said = run("info", "--store", store).ok().out
    assert f"rows        {found['rows']['written']:,}" in said


def rows_from(run: Run, folder: Path, name: str, *arguments: object) -> list[dict[str, Any]]:
    """The rows that a command writes; bytes as hex."""
    run(name, *arguments, "--output", folder / "rows.parquet").ok()
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    return [
        {key: value.hex() if isinstance(value, bytes) else value for key, value in row.items()}
        for row in rows
    ]


def test_a_store_opens_and_holds_the_rows_of_its_input(store: Path, earlier: Path) -> None:
    snapshot = open_store(str(store))
    expected = {row["id"]: row for row in _input_rows(earlier) if row["text"].strip()}
    found = rows_of(store)
    assert {
        row["id"]: {name: row[name] for name in ("id", "text", "lang")} for row in found
    } == expected
    assert len(found) == len(expected) == 86
    assert snapshot.vectors(snapshot.dataset().to_table().column("embedding")).shape == (
        86,
        snapshot.space.dim,
    )


def _input_rows(folder: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(folder / "input" / "a.parquet").to_pylist()
    lines = [
        line
        for name in ("b.jsonl", "c.jsonl")
        for line in (folder / "input" / name).read_text().splitlines()
    ]
    return rows + [json.loads(line) for line in lines]


def test_every_snapshot_of_it_is_whole(run: Run, store: Path, answers: dict[str, Any]) -> None:
    for snapshot in answers["history"]:
        run("verify", "--store", store, "--snapshot", snapshot["run"]).ok()


def test_its_history_files_and_differences_are_told_as_they_were(
    run: Run, store: Path, tmp_path: Path, answers: dict[str, Any]
) -> None:
    history = rows_from(run, tmp_path, "history", "--store", store)
    told = [
        {name: row[name] for name in then}
        for row, then in zip(history, answers["history"], strict=True)
    ]
    assert told == answers["history"]
    assert run("files", "--store", store).ok().out.splitlines() == [
        str(store / path) for path in answers["files"]
    ]
    for runs, differences in answers["diff"].items():
        assert rows_from(run, tmp_path, "diff", *runs.split(), "--store", store) == differences


def test_it_is_searched_with_the_same_results(
    run: Run, store: Path, tmp_path: Path, answers: dict[str, Any]
) -> None:
    asked = ["--store", store, "--queries", store.parent / "queries.txt", "-k", 5]
    for search, expected in answers["search"].items():
        snapshot, kind = search.split()
        how = ["--exact"] if kind == "exact" else []
        found = rows_from(run, tmp_path, "search", *asked, "--snapshot", snapshot, *how)
        assert [[row["query"], row["id"]] for row in found] == [row[:2] for row in expected]
        assert [row["score"] for row in found] == pytest.approx(
            [row[2] for row in expected], rel=CLOSE
        )


def test_an_unchanged_input_is_carried_over(run: Run, store: Path) -> None:
    shards, before = files_in(store, "embeddings", "index"), open_store(str(store)).manifest.data
    embed(run, store)
    after = check_ledger(store, 86, 1, carried=86)
    assert files_in(store, "embeddings", "index") == shards
    assert after["shards"] == before["shards"]
    assert (after["space"], after["previous"]) == (before["space"], before["run"])


def test_a_changed_input_is_followed_by_vectors_and_index(
    run: Run, store: Path, earlier: Path
) -> None:
    before = open_store(str(store)).manifest.data
    new, copy = _change(earlier, 1, {"id": "more", "text": ONE_MORE, "lang": "en"})
    assert (new["id"], copy["id"]) == ("new1", "copy3")
    embed(run, store)
    after = check_ledger(store, 86, 1, embedded=1)
    change = after["index"]["change"]
    assert (change["what"], change["added"], change["deleted"]) == ("followed", 1, 1)
    assert after["index"]["trained"] == before["index"]["trained"]
    assert _segments(after) == {"base": 1, "delta": 2, "held-out": 1}
    for exact in (False, True):
        best = open_store(str(store)).search([ONE_MORE], k=87, exact=exact)[0]
        assert len(best) == 86
        assert "more" in [row["id"] for row in best]
        assert copy["id"] not in [row["id"] for row in best]


def test_its_segments_are_compacted(run: Run, store: Path, earlier: Path) -> None:
    # of a delta of four rows
    gone, _ = _change(earlier, 0, {"id": "more", "text": ONE_MORE, "lang": "en"})
    embed(run, store)
    after = check_ledger(store, 86, 1, embedded=1)
    assert after["index"]["change"]["what"] == "compacted"
    assert _segments(after) == {"base": 2, "delta": 1, "held-out": 1}
    found = open_store(str(store)).search([ONE_MORE], k=87)[0]
    assert len(found) == 86
    assert gone["id"] not in [row["id"] for row in found]


@variants("what", ["path", "locator"], (0,))
def test_a_damaged_file_of_its_index_is_not_searched_and_made_again(
    run: Run, store: Path, what: str
) -> None:
    segment = open_store(str(store)).manifest.data["index"]["segments"][0]
    path = store / segment[what]
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    run("search", "--store", store, "--query", ONE_MORE).failed(1, path, "makes it again")
    assert f"index/{path.name} was changed after it was written" in embed(run, store).out
    assert run("search", "--store", store, "--query", ONE_MORE).ok().out
    run("verify", "--store", store).ok()


def test_reading_it_leaves_its_format_and_a_run_brings_it_to_the_present_one(
    run: Run, store: Path
) -> None:
    before = open_store(str(store)).manifest
    run("verify", "--store", store).ok()
    run("history", "--store", store).ok()
    run("search", "--store", store, "--query", ONE_MORE).ok()
    assert open_store(str(store)).manifest.data["format"] == 1
    embed(run, store)
    assert open_store(str(store)).manifest.data["format"] == 2
    then = json.loads((store / "manifests" / f"{before.run}.json").read_text())
    (store / "manifest.json").write_text(json.dumps(then))  # the way back
    run("verify", "--store", store).ok()
    assert open_store(str(store)).manifest.run == before.run


def test_its_index_is_cut_by_lists_when_it_is_merged(run: Run, store: Path) -> None:
    """An index without lists becomes one segment, as before."""
    query = ("search", "--store", store, "--query", ONE_MORE, "-k", 30)
    index = open_store(str(store)).manifest.data["index"]
    found = run(*query).ok().out
    request = index["request"]
    how = ("--index", request["index"], "--metric", request["metric"], "--merge")
    run("index", "--store", store, *how).ok()
    merged = open_store(str(store)).manifest.data
    has_lists = index["factory"].startswith("IVF")
    assert merged["index"]["change"]["what"] == "compacted"
    assert _segments(merged) == {"base": 1, "held-out": 1}
    assert merged["index"].get("layout") == ("lists" if has_lists else None)
    assert merged["format"] == (3 if has_lists else 2)
    assert run(*query).ok().out == found
    run("verify", "--store", store).ok()


def test_its_index_keeps_its_metric_until_another_is_asked_for(run: Run, store: Path) -> None:
    embed(run, store)
    assert open_store(str(store)).manifest.data["index"]["metric"] == "ip"
    run("index", "--store", store, "--metric", "cosine").ok()
    index = open_store(str(store)).manifest.data["index"]
    assert (index["metric"], index["request"]["metric"]) == ("cosine", "cosine")
    embed(run, store)
    assert open_store(str(store)).manifest.data["index"]["metric"] == "cosine"


def test_its_options_stay_and_kept_text_runs_no_model(run: Run, store: Path) -> None:
    embed(run, store)
    options = open_store(str(store)).manifest.data["options"]
    assert (options["keep_columns"], options["prompt"]) == (["text", "lang"], "")
    assert not options["keep_text"]
    embed(run, store, "--keep-text")
    assert open_store(str(store)).manifest.data["work"]["embedded"] == 0
    check_ledger(store, 86, 1, reused=86)


def test_a_run_that_would_delete_most_of_it_ends_and_changes_nothing(run: Run, store: Path) -> None:
    rows = (store.parent / "input" / "b.jsonl").read_text().splitlines()
    (store.parent / "one.jsonl").write_text(rows[0] + "\n")
    before = open_store(str(store)).manifest.run
    run("embed", "--input", store.parent / "one.jsonl", "--store", store).failed(
        3, "--max-deletes 1"
    )
    assert open_store(str(store)).manifest.run == before


def _change(folder: Path, deleted: int, added: dict[str, str]) -> list[dict[str, str]]:
    """Delete a row of the small file and add another; the rows that it had."""
    path = folder / "input" / "c.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [row for place, row in enumerate(rows) if place != deleted]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*kept, added]))
    return rows


def _segments(manifest: dict[str, Any]) -> Counter[str]:
    return Counter(segment["kind"] for segment in manifest["index"]["segments"])


def test_other_options_are_refused_and_leave_it_alone(run: Run, store: Path) -> None:
    before = files_in(store)
    options = ["--input", store.parent / "input" / "*", "--store", store, "--pooler", "cls"]
    run("embed", *options).failed(2, "another space: pooler")
    assert files_in(store) == before


@variants(("name", "embedded"), [("other_size", 0), ("lost", 280)], (1,))
def test_a_store_that_does_not_say_which_files_share_units_has_all_rows_after_the_next_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, embedded: int
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(FIXTURES / "0_1_0" / "hub"))
    folder = shutil.copytree(FIXTURES / "groups", tmp_path / "groups")
    store = folder / name
    before = open_store(str(store)).manifest
    run("index", "--store", store, "--index", "Flat").ok()
    assert len(rows_of(store)) == before.rows.written
    run("embed", "--input", f"{folder}/input/*", "--store", store).ok()
    check_ledger(store, 400, embedded=embedded)
    run("embed", "--input", f"{folder}/input/*", "--store", store, "--unit-tokens", 30_000).ok()
    check_ledger(store, 400, embedded=0)
    assert sum(file.group != "" for file in open_store(str(store)).manifest.files) == 20
    run("rollback", before.run, "--store", store).ok()
    assert len(rows_of(store)) == before.rows.written
    run("verify", "--store", store).ok()
