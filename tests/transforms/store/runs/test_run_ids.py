"""Ids of runs: greater than those before, whatever the clock says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs.run_ids import (
    find_last_run,
    make_following_id,
    make_run_id,
    parse_start,
)

times = st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))


def id_of(time: datetime) -> str:
    """The id of a run that starts at a time."""
    return make_following_id(None, time)


@given(times)
def test_an_id_states_the_start_to_the_millisecond(now: datetime) -> None:
    found = datetime.fromisoformat(parse_start(make_following_id(None, now)))
    assert found == now.replace(microsecond=now.microsecond // 1000 * 1000)


@given(st.lists(times, max_size=8))
def test_ids_of_a_store_only_grow(clock: list[datetime]) -> None:
    """The clock may stop and go back."""
    ids: list[str] = []
    for now in clock:
        ids.append(make_following_id(ids[-1] if ids else None, now))
    assert ids == sorted(ids)
    assert len({run.rpartition("-")[0] for run in ids}) == len(ids)


@given(times)
def test_ids_are_known_everywhere(time: datetime) -> None:
    run = id_of(time)
    assert layout.kind(layout.snapshot(run)) == "snapshots"
    kinds = [layout.kind(make(run)) for make in (layout.plan, layout.result, layout.reject_list)]
    assert kinds == ["plans", "results", "lists"]
    assert layout.snapshot_run(layout.snapshot(run)) == layout.result_run(layout.result(run)) == run


def test_names_that_are_no_ids_state_nothing() -> None:
    for name in (
        "",
        "x",
        "20261122T153748_123Z",
        "20261122T153748Z-abcdef",
        "20261122T153748_12Z-abcdef",
        "20261122T153748.123Z-abcdef",
    ):
        assert parse_start(name) == ""
        assert layout.kind(layout.snapshot(name)) is None


def test_a_new_run_comes_after_every_run_of_its_store(tmp_path: Path) -> None:
    assert find_last_run(str(tmp_path)) is None
    future = datetime.now(UTC) + timedelta(days=1)
    failed = id_of(future)
    for name in (id_of(future - timedelta(days=2)), failed, "notes", "29990230T000000_000Z-abcdef"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "result.json").write_text("{}")
    assert find_last_run(str(tmp_path)) == failed
    assert failed < make_run_id(str(tmp_path)) < id_of(future + timedelta(seconds=2))
    assert make_run_id() < failed
