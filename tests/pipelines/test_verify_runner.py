"""`verify --runner`: the workers of a pipeline find what the threads of one process find.

Covers pipelines/verify.py.
Covers pipelines/common/optional_beam.py.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.commands import Run
from helpers.nights import Nights
from helpers.snapshots import units_of

from sentence_beam.pipelines import verify
from sentence_beam.pipelines.verify import verify_by_workers
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.verification import Extent, faults


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(cached_beam_options: None) -> None:
    """Beam's own runner: it is part of what is tested."""


CORPUS = {f"f{n:02d}": [(f"{n}-{i}", f"text {n} {i}") for i in range(2)] for n in range(20)}
HERE = PipelineOptions(["--runner=FnApiRunner"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """A store of twenty shards with a small index, which tests copy; it has no canary, which is
    one fault.
    """
    made = Nights(tmp_path_factory.mktemp("made") / "store")
    made.commit(CORPUS, IndexRequest("Flat"))
    return made


@pytest.fixture
def nights(made: Nights, tmp_path: Path) -> Nights:
    """A copy of that store."""
    return replace(made, root=shutil.copytree(made.root, tmp_path / "store"))


def both(manifest: Manifest, extent: Extent) -> list[str]:
    """What both find, which is the same."""
    found = faults(manifest, extent)
    assert verify_by_workers(manifest, extent, HERE) == found
    assert not list(Path(manifest.root).rglob("verify-*"))
    return found


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shards(nights: Nights) -> list[Path]:
    return [nights.root / unit["path"] for unit in units_of(nights.root)]


DAMAGE: dict[str, tuple[Callable[[Nights], object], int]] = {
    "none": (lambda nights: None, 0),
    "shards and the manifest": (
        lambda nights: (
            shards(nights)[17].unlink(),
            flip(shards(nights)[2]),
            flip(nights.root / "manifest.json"),
        ),
        2,
    ),
    "an index file": (lambda nights: flip(nights.root / nights.index["segments"][0]["path"]), 1),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_the_same_lines_in_the_same_order(nights: Nights, what: str) -> None:
    damage, least = DAMAGE[what]
    manifest, sound = nights.manifest, len(both(nights.manifest, Extent()))
    damage(nights)
    assert len(both(manifest, Extent())) >= sound + least


def test_rows_that_no_segment_has_and_those_that_two_have(nights: Nights) -> None:
    manifest, sound = nights.manifest, len(faults(nights.manifest))
    index = manifest.index
    assert index is not None
    twice = replace(manifest, index=replace(index, segments=(*index.segments, *index.segments)))
    none = replace(manifest, index=replace(index, segments=()))
    for changed, said in (
        (twice, "2 rows are in the index twice"),
        (none, "2 rows are not in the index"),
    ):
        lines = faults(changed)
        assert len(lines) == sound + len(CORPUS)
        assert sum(said in line for line in lines) == len(CORPUS)


def test_a_part_of_the_shards(nights: Nights) -> None:
    flip(shards(nights)[3])
    assert len(both(nights.manifest, Extent(0.5))) <= len(faults(nights.manifest))


def test_the_command(nights: Nights, run: Run) -> None:
    shards(nights)[5].unlink()
    plain = run("verify", "--store", nights.root)
    spread = run("verify", "--store", nights.root, "--runner", "FnApiRunner")
    assert (spread.status, spread.err) == (plain.status, plain.err) == (1, spread.err)
    assert "the shard is missing" in spread.err
    run(
        "verify", "--store", nights.root, "--runner", "FnApiRunner", "--no_wait_until_finish"
    ).failed(2, "verify waits for its job")


@pytest.mark.parametrize("flags", [(), ("--runner", "FnApiRunner")], ids=["threads", "workers"])
def test_a_snapshot_that_vacuum_removes_meanwhile_is_no_damage(
    nights: Nights, run: Run, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    first, named = nights.manifest.run, shards(nights)

    def meanwhile(call: Callable[..., list[str]], *given: object) -> list[str]:
        nights.commit({name: [(f"{name}-0", f"other {name}")] for name in CORPUS})
        for path in (nights.root / "manifests" / f"{first}.json", *named):  # in vacuum's order
            path.unlink()
        return call(*given)

    for name in ("faults", "by_workers"):
        monkeypatch.setattr(verify, name, partial(meanwhile, getattr(verify, name)))
    run("verify", "--store", nights.root, *flags).failed(
        1, f"vacuum removed snapshot {first} meanwhile"
    )


def test_a_commit_meanwhile_is_no_fault(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    before = nights.manifest
    sound = faults(before)
    nights.commit({**CORPUS, "g": [("g", "more")]})
    assert both(before, Extent()) == sound


def test_a_sample_and_a_snapshot_that_there_cannot_be(nights: Nights, run: Run) -> None:
    for flags, said in (
        (("--sample", 1.5), "1.5 is not a number from 0 to 1"),
        (("--sample", "nan"), "nan is not a number from 0 to 1"),
        (("--snapshot", "nope"), "has no snapshot nope"),
        (("--snapshot", "nope", "--runner", "FnApiRunner"), "has no snapshot nope"),
    ):
        run("verify", "--store", nights.root, *flags).failed(2, said)
