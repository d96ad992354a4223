"""A flipped byte in any file of a store: it is found, mended or read by nobody; never are there
wrong rows.

Whatever a file of a store holds, no command ends with anything but its one line.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest
from helpers.calibrations import fit_on
from helpers.commands import Outcome, Run
from helpers.corpora import sentences, write_parquet
from helpers.snapshots import small_parts, units_of

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.base.arrow_arrays import write_parquet_bytes
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.run_ids import make_run_id

pytest.importorskip("faiss")
pytestmark = [
    pytest.mark.usefixtures("one_model", "every_shard_checked"),
    pytest.mark.timeout(7200),
]
# by those who read a snapshot
UNREAD = ("sidecars", "runs", "report.json", "report.html", "lease.json")
EVERY = 6  # flips for each run of embed over one

Content = Callable[[bytes], bytes]  # what a file holds instead, by what it held
CONTENTS: dict[str, Content] = {
    "nothing": lambda whole: b"",
    "null": lambda whole: b"null",
    "a list": lambda whole: b"[]",
    "an object": lambda whole: b"{}",
    "brackets": lambda whole: b"[" * 100_000,
    "no text": lambda whole: b"\xff\x00" * 20,
    "half of it": lambda whole: whole[: len(whole) // 2],
    "zeros": lambda whole: bytes(len(whole)),
    "an empty Parquet file": lambda whole: write_parquet_bytes(pa.table({})),
    "another field": lambda whole: another_field(whole),
}
VERIFY = ("verify",)
READ_BY = (
    ("files",),
    ("history",),
    ("report", "--format", "openmetrics"),
    ("rejects",),
    ("diff",),
    ("vacuum", "--keep", "1", "--dry-run"),
)


@dataclass(frozen=True)
class Made:
    """A whole store, the inputs beside it, and what it holds."""

    folder: Path
    embed: tuple[object, ...]
    content: Any
    named: frozenset[Path]  # within the store, by its snapshot or by the layout


def named_files(store: Path) -> frozenset[Path]:
    """The files of a store that its snapshot consists of, within the store."""
    manifest = open_store(str(store)).manifest
    said = str([manifest.data, units_of(store, manifest.data)]) + manifest.run
    digests = {manifest.space.calibration}
    files = (path.relative_to(store) for path in store.rglob("*") if path.is_file())
    kept = (
        path
        for path in files
        if str(path) == "manifest.json" or path.stem in said or path.parent.name in digests
    )
    return frozenset(path for path in kept if path.parts[0] not in UNREAD)


def content(store: Path) -> Any:
    """The rows with their vectors, and the hits of three queries."""
    snapshot = open_store(str(store))
    rows = read_by_pyarrow(snapshot.dataset())
    data = Counter(
        (row["id"], row["row_hash"], row["text"], row["norm"], tuple(row["embedding"]))
        for row in rows
    )
    queries = (
        np.random.default_rng(1)
        .standard_normal((3, snapshot.manifest.space.dim))
        .astype(np.float32)
    )
    searcher = Searcher(snapshot.manifest)
    hits = searcher.rows.describe(searcher.nearest(queries, 9))
    return data, [[row["id"] for row in found] for found in hits]


class UnreadableError(Exception):
    """What pyarrow says of a shard, which people may read without this project."""


def read_by_pyarrow(dataset: pa.dataset.Dataset) -> list[dict[str, Any]]:
    """The rows of a snapshot. Raises UnreadableError."""
    try:
        return dataset.to_table(columns=["id", "row_hash", "text", "norm", "embedding"]).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: text that is no UTF-8
        raise UnreadableError from error


def another_field(whole: bytes) -> bytes:
    """An object with one more field; of other files nothing."""
    try:
        said = json.loads(whole)
        return json.dumps({**said, "another": [said]}).encode()
    except (ValueError, TypeError):
        return b""


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A store of two nights with every kind of file: codes, a calibration, an index of lists,
    rejected rows, parts, an erased row.
    """
    folder = tmp_path_factory.mktemp("made")
    options: list[object] = [
        "--id-column",
        "id",
        "--keep-columns",
        "text",
        "--unit-tokens",
        300,
        "--dtype",
        "float32",
    ]
    options += ["--max-rejects", 1, "--input", folder / "in" / "*", "--model", model]
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        for night in range(2):
            for name in "ab":
                texts = [*sentences(60, 100 * night if name == "a" else 500), ""]
                write_parquet(
                    folder / "in" / f"{name}.parquet",
                    texts,
                    row_group_size=20,
                    id=[f"{name}{n}" for n in range(61)],
                )
            if night:
                fitted = fit_on(folder / "store", "standardize", folder / "fitted")
                options += [
                    "--precision",
                    "int8",
                    "--index",
                    "IVF2,RaBitQ",
                    "--calibration",
                    fitted,
                ]
            assert (
                main([str(option) for option in ("embed", "--store", folder / "store", *options)])
                == 0
            )
            if not night:
                forget = ["forget", "--store", folder / "store", "--id", "b7"]
                assert main([str(option) for option in forget]) == 0
        (folder / "queries.txt").write_text("\n".join(sentences(5)))
        asked = ["--queries", folder / "queries.txt"]
        watch = ["watch", "--store", folder / "store", *asked]
        assert main([str(option) for option in watch]) == 0
        too_many = [*options, "--max-rejects", 0, "--reembed"]
        assert (
            main([str(option) for option in ("embed", "--store", folder / "store", *too_many)]) == 3
        )
    leave_what_a_killed_run_leaves(folder / "store")
    return Made(folder, tuple(options), content(folder / "store"), named_files(folder / "store"))


def leave_what_a_killed_run_leaves(store: Path) -> None:
    """A lease of a process that is dead, and a mark in the folder of its run."""
    run = make_run_id(str(store))
    held = lease.Lease.from_this_process(run, "FnApiRunner", "job", in_process=True)
    (store / layout.LEASE).write_bytes(replace(held, process_start=1).to_bytes())
    scratch = store / layout.scratch(run, "begun-x")
    scratch.parent.mkdir()
    scratch.write_bytes(b"mark")


def kinds(made: Made) -> dict[str, list[Path]]:
    """The files of the store by kind, within it; those of which its snapshot consists before the
    others.
    """
    store, found = made.folder / "store", dict[str, list[Path]]()
    for path in sorted(
        path.relative_to(store)
        for path in store.rglob("*")
        if path.is_file() and path.stat().st_size
    ):
        kind = layout.kind(str(path)) or path.name
        found.setdefault(f"{kind} {path.suffix}" if kind == "index" else kind, []).append(path)
    return {
        kind: sorted(paths, key=lambda path: path not in made.named)
        for kind, paths in found.items()
    }


def right(store: Path, wanted: Any) -> bool | None:
    """Whether a store holds what it should; None where it cannot be read, which is said in one
    line.
    """
    try:
        return content(store) == wanted
    except SentenceBeamError as error:
        said = str(error)
    except UnreadableError:
        return None
    assert len(said.splitlines()) == 1
    return None


def one_line(outcome: Outcome) -> None:
    assert outcome.status in (0, 1, 2, 3, 4)
    assert "Traceback" not in outcome.err
    assert "finished work is kept" not in outcome.err, outcome.err  # an error that nobody foresaw
    if outcome.status:
        assert outcome.err.splitlines()[-1].startswith("sentence-beam "), outcome.err


def flipped(
    run: Run, made: Made, store: Path, kind: str, rng: random.Random, with_embed: bool
) -> str:
    """A case: a byte of some file of a kind is another; what came of it."""
    paths = kinds(made)[kind]
    chosen = paths[0] if rng.random() < 0.5 else rng.choice(paths)
    path = store / chosen
    whole = path.read_bytes()
    data, edge = bytearray(whole), min(len(whole), 64)
    at = rng.choice(
        [rng.randrange(len(data)), rng.randrange(edge), len(data) - 1 - rng.randrange(edge)]
    )
    bits = rng.choice([1, 32, 255])
    data[at] ^= bits
    path.write_bytes(data)
    what = f"{chosen}, byte {at} of {len(data)}, bits {bits}"
    verified = run("verify", "--store", store)
    one_line(verified)
    found = right(store, made.content)
    assert found is not False, f"{what}: other rows or hits; verify: {verified}"
    assert verified.status or found, f"{what}: verify finds nothing, and it cannot be read"
    if with_embed:
        ended = run("embed", "--store", store, *made.embed)
        one_line(ended)
        if ended.status == 0:
            after = run("verify", "--store", store)
            assert right(store, made.content), f"{what}: embed leaves other rows"
            assert set(after.err.splitlines()[:-1]) <= set(verified.err.splitlines()), (
                f"{what}: embed leaves {after.err}"
            )
        shutil.rmtree(store)
        shutil.copytree(made.folder / "store", store)
        if ended.status:
            return "embed ends with one line"
        return "embed mends it" if after.status == 0 else "embed leaves it, verify finds it"
    path.write_bytes(whole)
    if verified.status:
        return "verify finds it"
    return "it means the same" if chosen in made.named else "no snapshot's reader reads it"


def holding(
    run: Run,
    made: Made,
    store: Path,
    path: Path,
    content: Content,
    readers: Sequence[tuple[str, ...]],
    with_embed: bool,
) -> str:
    """A case: a file holds something else; what came of it."""
    whole = (store / path).read_bytes()
    (store / path).write_bytes(content(whole))
    verified, *others = [run(*command, "--store", store) for command in (VERIFY, *readers)]
    for outcome in (verified, *others):
        one_line(outcome)
    assert right(store, made.content) or verified.status, (
        "verify finds nothing in a store that is not as it was"
    )
    (store / path).write_bytes(whole)
    if not with_embed:
        return "read"
    (store / path).write_bytes(content(whole))
    ended = run("embed", "--store", store, *made.embed)
    one_line(ended)
    shutil.rmtree(store)
    shutil.copytree(made.folder / "store", store)
    return f"embed ends with {ended.status}"


def try_contents(
    run: Run, made: Made, store: Path, each: int, readers: int, seed: int, every: int
) -> Counter[str]:
    """So many contents in a file of each kind, each read by so many commands beside `verify`, and
    how they ended.
    """
    shutil.copytree(made.folder / "store", store)
    rng, ended = random.Random(seed), Counter[str]()
    for number, (kind, paths) in enumerate(sorted(kinds(made).items())):
        for place, name in enumerate(rng.sample(sorted(CONTENTS), each)):
            try:
                path = paths[0] if rng.random() < 0.5 else rng.choice(paths)
                with_embed = (number + place) % every == 0
                asked = rng.sample(READ_BY, readers)
                ended[holding(run, made, store, path, CONTENTS[name], asked, with_embed)] += 1
            except Exception as error:
                raise AssertionError(f"{name} in {path}, of {kind}") from error
    return ended


def try_flips(run: Run, made: Made, store: Path, each: int, seed: int) -> dict[str, Counter[str]]:
    """So many flips for each kind of file, and how they ended."""
    shutil.copytree(made.folder / "store", store)
    rng = random.Random(seed)
    return {
        kind: Counter(
            flipped(run, made, store, kind, rng, number % EVERY == EVERY - 1)
            for number in range(each)
        )
        for kind in sorted(kinds(made))
    }


def lines(tried: dict[str, Counter[str]]) -> str:
    total = sum((counts for counts in tried.values()), Counter[str]())
    of_kinds = "\n".join(
        f"    {kind}: {counts.total()} cases: {dict(sorted(counts.items()))}"
        for kind, counts in tried.items()
    )
    return f"flipped bytes: {total.total()} cases: {dict(sorted(total.items()))}\n{of_kinds}"


def test_there_is_a_file_of_each_class(made: Made) -> None:
    of_index = {f"index .{suffix}" for suffix in layout.INDEX_SUFFIXES}
    # a model needs OpenVINO, and an unfinished erasure keeps all other writers out
    others = {"index", "int8", "unfinished"}
    assert set(kinds(made)) == set(layout.CLASSES) - others | of_index


def test_a_few_files_that_hold_anything(
    run: Run, made: Made, store: Path, tell: Callable[[str], None]
) -> None:
    tell(f"files that hold anything: {dict(try_contents(run, made, store, 1, 2, seed=1, every=6))}")


@pytest.mark.slow
def test_files_that_hold_anything(
    run: Run, made: Made, store: Path, tell: Callable[[str], None]
) -> None:
    ended = try_contents(
        run,
        made,
        store,
        len(CONTENTS),
        len(READ_BY),
        random.SystemRandom().randrange(10**6),
        every=2,
    )
    tell(f"files that hold anything: {ended.total()} cases: {dict(sorted(ended.items()))}")


def test_a_few_flipped_bytes(
    run: Run, made: Made, store: Path, tell: Callable[[str], None]
) -> None:
    tell(lines(try_flips(run, made, store, 2, seed=1)))


@pytest.mark.slow
def test_flipped_bytes(
    run: Run, made: Made, store: Path, tell: Callable[[str], None], size: float
) -> None:
    tell(
        lines(
            try_flips(
                run, made, store, max(1, int(60 * size)), random.SystemRandom().randrange(10**6)
            )
        )
    )
