"""Ids of runs: greater than those before, whatever the clock says; ids of earlier versions among
them.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs.run_ids import (
    following,
    in_order,
    last_run,
    new_run,
    start_of,
)

times = st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))
hex_digits = st.integers(0, 16**6 - 1).map("{:06x}".format)


def old_id(time: datetime, suffix: str = "abcdef") -> str:
    """The id that a run of this time had when ids had whole seconds."""
    return f"{time:%Y%m%dT%H%M%SZ}-{suffix}"


@given(times)
def test_an_id_states_the_start_to_the_millisecond(now: datetime) -> None:
    found = datetime.fromisoformat(start_of(following(None, now)))
    assert found == now.replace(microsecond=now.microsecond // 1000 * 1000)


@given(st.lists(times, max_size=8))
def test_ids_of_a_store_only_grow(clock: list[datetime]) -> None:
    """The clock may stop and go back."""
    ids: list[str] = []
    for now in clock:
        ids.append(following(ids[-1] if ids else None, now))
    assert ids == sorted(ids)
    assert ids == sorted(ids, key=lambda run: in_order(run, ""))
    assert len({run.rpartition("-")[0] for run in ids}) == len(ids)


@given(times, hex_digits, times)
def test_an_id_follows_one_of_an_earlier_version(
    before: datetime, suffix: str, now: datetime
) -> None:
    old = old_id(before, suffix)
    new = following(old, now)
    assert new > old
    assert in_order(new, "") > in_order(old, "")


@given(times, times, hex_digits)
def test_mixed_ids_sort_by_start(one: datetime, other: datetime, suffix: str) -> None:
    old, new = old_id(one, suffix), following(None, other)
    second = one.replace(microsecond=0)
    assert (old < new) == (second <= other)
    assert (in_order(old, "") < in_order(new, "")) == (second <= other)


@given(times, hex_digits)
def test_both_kinds_of_ids_are_known_everywhere(time: datetime, suffix: str) -> None:
    for run in (old_id(time, suffix), following(None, time)):
        assert layout.kind(layout.snapshot(run)) == "snapshots"
        kinds = [
            layout.kind(make(run)) for make in (layout.plan, layout.result, layout.reject_list)
        ]
        assert kinds == ["plans", "results", "lists"]
        assert (
            layout.snapshot_run(layout.snapshot(run))
            == layout.result_run(layout.result(run))
            == run
        )
        assert datetime.fromisoformat(start_of(run)).replace(microsecond=0) == time.replace(
            microsecond=0
        )


def test_names_that_are_no_ids_state_nothing() -> None:
    for name in (
        "",
        "x",
        "20261122T153748Z",
        "20261122T153748_12Z-abcdef",
        "20261122T153748.123Z-abcdef",
    ):
        assert start_of(name) == ""
        assert layout.kind(layout.snapshot(name)) is None


def test_a_new_run_comes_after_every_run_of_its_store(tmp_path: Path) -> None:
    assert last_run(str(tmp_path)) is None
    future = datetime.now(UTC) + timedelta(days=1)
    failed = old_id(future)
    for name in (old_id(future - timedelta(days=2)), failed, "notes", "29990230T000000Z-abcdef"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "result.json").write_text("{}")
    assert last_run(str(tmp_path)) == failed
    assert failed < new_run(str(tmp_path)) < old_id(future + timedelta(seconds=2))
    assert new_run() < failed
