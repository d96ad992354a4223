"""Hostile files of every kind: whatever their bytes, there is a right result or one line, and
nothing else is touched.

The cases of the normal run are few and always the same; `make faults` runs many, which differ from
time to time.
"""

import contextlib
import copy
import hashlib
import io
import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.calibrations import fit_on
from helpers.corpora import sentences, write_jsonl, write_lines, write_parquet
from helpers.nights import DIM, Nights
from helpers.settled import finish, settled
from helpers.snapshots import begin, night, numbered, records_of, run_name, write_unit
from helpers.tiny_models import save_tiny_model
from helpers.units import make_vectors
from helpers.watching import watched_nights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.calibration import parse_calibration
from sentence_beam.transforms.corpus import Columns, match_inputs, read_span
from sentence_beam.transforms.corpus.collection_rows import plan_file
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.space import parse_pooler, row_hashes
from sentence_beam.transforms.steps.watch.watch_run import WatchJob, watch_answers
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.calibrations import read_calibration
from sentence_beam.transforms.store.runs import lease, lease_file
from sentence_beam.transforms.store.runs.canary import Canary
from sentence_beam.transforms.store.runs.reused_vectors import LastSnapshot
from sentence_beam.transforms.store.runs.run_result import read_result
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes
from sentence_beam.transforms.store.shards.precision import Ranges
from sentence_beam.transforms.store.shards.shard_reading import read_shard, take_rows
from sentence_beam.transforms.store.verification import faults
from sentence_beam.transforms.store.watched import keep_watch_file

Json = Any
Change = Callable[[bytes], bytes]

VALUES: list[Json] = [
    None, True, -1, 0, 1, 2**63, 10**40, 1.5, 1e308, float("nan"), float("-inf"), "", "x", "a\nb", "\x00", "\ud800", "é" * 300,
    "..", "../../outside/secret.json", "/etc/passwd", "embeddings/../../outside/secret.json", "gs://bucket/x", "s3://b/x",
    "file:///etc/passwd", "C:\\x", "-", "~", [], [[]], [None], [-1, "x"], {}, {"": None}, {"path": "/etc/passwd"},
]  # fmt: skip


def _places(value: Json, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value within some JSON, the outermost first."""
    keys = (
        sorted(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    return [place, *(found for key in keys for found in _places(value[key], (*place, key)))]


def edited(value: Json, number: int, new: Json, how: str) -> Json:
    """The JSON with one of its values replaced, removed, repeated or called otherwise; `number`
    counts its places.
    """
    places = _places(value)
    place = places[number % len(places)]
    if not place:
        return new
    made = copy.deepcopy(value)
    parent = made
    for key in place[:-1]:
        parent = parent[key]
    if how == "replace":
        parent[place[-1]] = new
    elif how == "remove":
        del parent[place[-1]]
    elif isinstance(parent, list):
        parent.append(parent[place[-1]])
    else:
        parent[f"{place[-1]}s"] = parent.pop(place[-1])
    return made


json_changes: st.SearchStrategy[Callable[[Json], Json]] = st.builds(
    lambda number, new, how: lambda value: edited(value, number, new, how),
    st.integers(0, 10_000), st.sampled_from(VALUES), st.sampled_from(["replace", "replace", "remove", "rename"]),
)  # fmt: skip


def _at(data: bytes, place: float) -> int:
    return int(place * len(data))


def _flip(place: float, other: bytes) -> Change:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for i, byte in enumerate(other):
            if changed:
                changed[(_at(data, place) + i) % len(changed)] ^= byte
        return bytes(changed)

    return change


_places_in = st.floats(0, 1, exclude_max=True)
byte_changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(_flip, _places_in, st.binary(min_size=1, max_size=4)),
    # where footers are
    st.builds(_flip, st.floats(0.9, 1, exclude_max=True), st.binary(min_size=1, max_size=8)),
    st.builds(lambda place: lambda data: data[: _at(data, place)], _places_in),
    st.builds(lambda place: lambda data: data[_at(data, place) :], _places_in),
    st.builds(lambda place, new: lambda data: data[: _at(data, place)] + new + data[_at(data, place) :],
              _places_in, st.binary(max_size=20)),
    st.builds(lambda new: lambda data: new, st.binary(max_size=40)),
)  # fmt: skip


def as_bytes(change: Callable[[Json], Json]) -> Change:
    """A change of JSON as one of the file that holds it."""
    return lambda data: json.dumps(change(json.loads(data))).encode("utf-8", "surrogatepass")


changes_of_json_files = st.one_of(byte_changes, st.builds(as_bytes, json_changes))


CELLS: list[Any] = [
    None, -1, 0, 1, 99, 2**31 - 1, 2**62, float("nan"), "", "r1", "../outside/secret.json", "/etc/passwd", "gs://bucket/x", b"x" * 16,
]  # fmt: skip


def _cell(number: int, value: Any) -> Change:
    """A Parquet file with one value replaced by one of the same type, if there is any."""

    def change(data: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(data))
        if not table.num_rows:
            return data
        column, row = number % table.num_columns, number // 7 % table.num_rows
        values = table.column(column).to_pylist()
        values[row] = value
        field = table.schema.field(column)
        try:
            edited = pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return data
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(column, field, edited), sink)
        return bytes(sink.getvalue())

    return change


def _rows(number: int, twice: bool) -> Change:
    """A Parquet file with one row less, or with one twice."""

    def change(data: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(data))
        places = list(range(table.num_rows))
        if places:
            place = number % len(places)
            places[place : place + 1] = [place, place] if twice else []
        sink = pa.BufferOutputStream()
        pq.write_table(table.take(pa.array(places, pa.int64())), sink)
        return bytes(sink.getvalue())

    return change


table_changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(_cell, st.integers(0, 10_000), st.sampled_from(CELLS)),
    st.builds(_rows, st.integers(0, 10_000), st.booleans()),
)


def campaign(
    strategy: st.SearchStrategy[Any], check: Callable[[Any], object], cases: int, fixed: bool
) -> int:
    """Try so many cases, the same ones each time where `fixed`; the number of cases that were
    run.
    """
    count = 0

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=fixed,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case: Any) -> None:
        nonlocal count
        count += 1
        check(case)

    run()
    return count


def state(folder: Path) -> dict[str, str]:
    """sha256 of every file below a folder."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


Check = Callable[[Any], object]


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """What is raised is an error of this project, with one line."""
    said = "a line"
    try:
        yield
    except SentenceBeamError as error:
        said = str(error)
    assert said.strip()
    assert "\n" not in said


def command(*arguments: object) -> None:
    """Run a command: it succeeds, or ends with one of the known statuses and a line that says what
    is wrong.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    assert status in (0, 1, 2, 3, 4)
    if status:
        assert err.getvalue().splitlines()[-1].startswith(f"sentence-beam {arguments[0]}: "), (
            err.getvalue()
        )
        assert "finished work is kept, run again to go on" not in err.getvalue(), err.getvalue()
        assert "Traceback" not in err.getvalue()


def manifests(folder: Path) -> tuple[Any, Check]:
    """A manifest with another value, or other bytes: read by the commands that need no model, and
    by a search.
    """
    nights = _indexed(folder)
    paths = [
        nights.root / "manifest.json",
        nights.root / "manifests" / f"{nights.manifest.run}.json",
    ]
    whole = paths[0].read_bytes()

    def check(case: tuple[Callable[[bytes], bytes], bool]) -> None:
        change, seal = case
        data = change(whole)
        if seal:
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                data = to_bytes(sealed(json.loads(data)))
        for path in paths:
            path.write_bytes(data)
        for name in ("files", "verify", "history", "vacuum --dry-run"):
            command(*name.split(), "--store", nights.root)
        with one_line():
            manifest = open_store(str(nights.root)).manifest
            if manifest.data["index"]:
                Searcher(manifest).nearest(np.ones((1, DIM), np.float32), 3)

    return st.tuples(changes_of_json_files, st.booleans()), check


def _indexed(folder: Path) -> Nights:
    nights = Nights(folder / "store")
    rows = {f"{name}.txt": [(f"{name}{i}", f"{name} text {i}") for i in range(20)] for name in "ab"}
    nights.commit(rows, IndexRequest("Flat"))
    return nights


def sidecars(folder: Path) -> tuple[Any, Check]:
    """The sidecar of a unit that is found again: the unit is right afterwards, whatever it said."""
    root = str(folder / "store")
    units = [list(numbered(0, 5).items()), list(numbered(5, 9).items())]
    night(root, 0, *units)
    paths = sorted((folder / "store" / "sidecars").iterdir())
    whole = [path.read_bytes() for path in paths]
    runs = iter(range(1, 10**6))

    def check(change: Callable[[bytes], bytes]) -> None:
        for path, data in zip(paths, whole, strict=True):
            path.write_bytes(change(data))
        run = begin(root, next(runs), 2)
        records = [write_unit(root, place, rows, run.id) for place, rows in enumerate(units)]
        assert [(record.rows, record.rejected, record.rejects) for record in records] == [
            (5, 0, None),
            (4, 0, None),
        ]
        result = finish(run, records, [])
        assert result.exit_code in (0, 4)
        assert list(faults(open_store(root).manifest)) == []

    return changes_of_json_files, check


def plans(folder: Path) -> tuple[Any, Check]:
    """The plan of a run, changed before its commit."""
    root = str(folder / "store")
    night(root, 0, numbered(0, 5))
    record = write_unit(root, 0, list(numbered(0, 5).items()))
    runs = iter(range(1, 10**6))

    def check(change: Callable[[bytes], bytes]) -> None:
        run = begin(root, next(runs), 1)
        path = folder / "store" / "runs" / run.id / "plan.parquet"
        path.write_bytes(change(path.read_bytes()))
        result = finish(run, [record], [])
        assert result.exit_code in (0, 1, 4)
        assert len(result.message.splitlines()) == 1

    return byte_changes, check


def locators(folder: Path) -> tuple[Any, Check]:
    """A locator with other bytes, which the manifest names all the same."""
    nights = _indexed(folder)
    data = nights.manifest.data
    segment = next(segment for segment in data["index"]["segments"] if segment["rows"])
    path = nights.root / segment["locator"]
    whole = path.read_bytes()

    def check(case: tuple[Callable[[bytes], bytes], bool]) -> None:
        change, named = case
        path.write_bytes(change(whole))
        segment["locator_sha256"] = hashlib.sha256(
            path.read_bytes() if named else whole
        ).hexdigest()
        for place in ("manifest.json", f"manifests/{data['run']}.json"):
            (nights.root / place).write_bytes(to_bytes(sealed(data)))
        command("verify", "--store", nights.root)
        with one_line():
            nights.search(["a text 1"], 3)

    return st.tuples(byte_changes, st.booleans()), check


def shard_files(folder: Path) -> tuple[Any, Check]:
    """A shard, which is checked, read, and taken vectors from."""
    root = str(folder / "store")
    night(root, 0, numbered(0, 9))
    manifest = open_store(root).manifest
    path, texts = Path(manifest.shard_paths[0]), [f"text {i}" for i in range(9)]
    whole, vectors = path.read_bytes(), make_vectors(9).embedding

    def check(change: Callable[[bytes], bytes]) -> None:
        path.write_bytes(change(whole))
        command("verify", "--store", root)
        with one_line():
            list(read_shard(str(path), ["id", "row_hash", "embedding"]))
        with one_line():
            take_rows(str(path), np.array([0, 8]), ["id"])
        found = (
            LastSnapshot(root, manifest.run, manifest.space)
            .shards(records_of(root))
            .find(row_hashes(texts))
        )
        assert found.vectors is None or np.array_equal(
            found.vectors.embedding, vectors[found.places]
        )

    return byte_changes, check


def calibrations(folder: Path) -> tuple[Any, Check]:
    """Either file of a calibration."""
    night(str(folder / "store"), 0, numbered(0, 20))
    made = fit_on(folder / "store", "standardize", folder / "calibration")
    whole = {path: path.read_bytes() for path in sorted(made.iterdir())}

    def check(case: tuple[Callable[[bytes], bytes], Callable[[bytes], bytes], int]) -> None:
        of_json, of_tensors, which = case
        for path, data in whole.items():
            change = of_json if path.suffix == ".json" else of_tensors
            path.write_bytes(change(data) if which in (2, path.suffix == ".json") else data)
        with one_line():
            read_calibration(str(made))

    return st.tuples(changes_of_json_files, byte_changes, st.integers(0, 2)), check


def small_files(folder: Path) -> tuple[Any, Check]:
    """The canary and the ranges of a store."""
    canary = Canary(("a", "b"), np.ones((2, 4), np.float32)).to_bytes()
    ranges = Ranges(np.zeros(4, np.float32), np.ones(4, np.float32)).to_bytes()

    def check(case: tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]) -> None:
        with one_line():
            Canary.from_bytes(case[0](canary))
        with one_line():
            Ranges.from_bytes(case[1](ranges), "ranges")

    return st.tuples(byte_changes, changes_of_json_files), check


def files_beside(folder: Path) -> tuple[Any, Check]:
    """What is beside a snapshot: a run's result, the report, the lease, the list of reject
    files.
    """
    root = folder / "store"
    for number in range(2):
        night(str(root), number, numbered(0, 5 + number))
    run = run_name(1)
    (root / layout.reject_list(run)).write_bytes(
        to_bytes({"rejects": [layout.rejects("0-0", "0" * 16)]})
    )
    (root / layout.LEASE).write_bytes(
        lease.Lease.from_this_process(run, "FnApiRunner", "job", True).to_bytes()
    )
    paths = [
        root / layout.result(run),
        root / layout.REPORT,
        root / layout.reject_list(run),
        root / layout.LEASE,
    ]
    whole = {path: path.read_bytes() for path in paths}

    def check(case: tuple[int, Callable[[bytes], bytes]]) -> None:
        number, change = case
        path = paths[number]
        path.write_bytes(change(whole[path]))
        for name in (
            "verify",
            "history",
            "rejects",
            "report --format openmetrics",
            "vacuum --dry-run",
        ):
            command(*name.split(), "--store", root)
        with one_line():
            lease.check(str(root))
        result = read_result(str(root), run)
        assert result is None or result.status == "committed"
        path.write_bytes(whole[path])

    return st.tuples(st.integers(0, len(paths) - 1), changes_of_json_files), check


def watch_files(folder: Path) -> tuple[Any, Check]:
    """A file of the watched queries, with a manifest that names it by its new bytes or the old.

    The next run has the figures of its answers, or a problem with one line.
    """
    nights = watched_nights(folder)
    rows = [(f"r{i}", f"text {i}") for i in range(6)]
    nights.commit({"a.txt": rows})
    entry = nights.watch(["text 1", "text 4"])
    run, units = nights.begin({"a.txt": [("r1", "another text"), *rows[2:]]})
    facts = [settled(run, units)]
    whole = {file: (nights.root / file.path).read_bytes() for file in entry.files}

    def check(case: tuple[int, Callable[[bytes], bytes], bool]) -> None:
        number, change, named = case
        names = ("queries", "answers")
        old = getattr(entry, names[number])
        data = change(whole[old])
        path = nights.root / old.path
        watch = entry
        if named:
            new = keep_watch_file(str(nights.root), data)
            path = nights.root / new.path
            watch = replace(entry, **{names[number]: new})
        path.write_bytes(data)
        (fact,) = watch_answers(facts, WatchJob(replace(run, watch=watch)))
        if fact.watch is None:
            assert fact.problem is not None
            assert len(str(fact.problem.error()).splitlines()) == 1
        path.unlink()
        (nights.root / old.path).write_bytes(whole[old])

    return st.tuples(
        st.integers(0, 1), st.one_of(byte_changes, table_changes), st.booleans()
    ), check


def _read(path: Path, columns: Columns) -> None:
    """Plan and read an input file, as a run does."""
    with one_line():
        for file in match_inputs(str(path)):
            open_columns(file).kept_types(columns)
            units = [
                unit
                for span in plan_file(file, columns.text, 500)
                for unit in read_span(span, columns, 500)
            ]
            for unit in units:
                assert unit.read == len(unit.ids) + len(unit.rejects)
                assert all(text.strip() for text in unit.texts)
                "".join([*unit.texts, *unit.ids]).encode()


def input_files(name: str) -> Callable[[Path], tuple[Any, Check]]:
    """An input file of one kind."""

    def prepare(folder: Path) -> tuple[Any, Check]:
        path = folder / name
        rows = [{"id": f"r{i}", "text": text, "n": i} for i, text in enumerate(sentences(20))]
        columns = Columns("text", "id", ("n",))
        if path.suffix == ".parquet":
            write_parquet(path, [row["text"] for row in rows], row_group_size=7)
            columns = Columns("text", None, ())
        elif path.suffix == ".jsonl":
            write_jsonl(path, rows)
        else:
            write_lines(path, [row["text"] for row in rows])
            columns = Columns("text", None, ())
        whole = path.read_bytes()

        def check(change: Callable[[bytes], bytes]) -> None:
            path.write_bytes(change(whole))
            _read(path, columns)

        def line(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
            def changed(data: bytes) -> bytes:
                lines = data.splitlines(keepends=True)
                return b"".join([*lines[:3], as_bytes(change)(lines[3]) + b"\n", *lines[4:]])

            return changed

        return (
            st.one_of(byte_changes, st.builds(line, json_changes))
            if path.suffix == ".jsonl"
            else byte_changes
        ), check

    return prepare


def models(folder: Path) -> tuple[Any, Check]:
    """One file of a model's folder."""
    made = save_tiny_model("bert", folder / "model")
    files = sorted(path for path in made.iterdir() if path.is_file())
    whole = {path: path.read_bytes() for path in files}

    def check(case: tuple[int, Callable[[bytes], bytes], Callable[[bytes], bytes]]) -> None:
        number, of_json, of_bytes = case
        path = files[number % len(files)]
        path.write_bytes((of_json if path.suffix == ".json" else of_bytes)(whole[path]))
        try:
            with one_line():
                vectors = Encoder.load(str(made), device="cpu").encode(["a man", "dog"])
                assert vectors.shape[0] == 2
        finally:
            path.write_bytes(whole[path])

    return st.tuples(st.integers(0, 100), changes_of_json_files, byte_changes), check


def specs(folder: Path) -> tuple[Any, Check]:
    """SPECs of poolers, calibrations and indexes: words of theirs in any order, and any text."""
    words = st.sampled_from(
        [
            "mean",
            "ditto",
            "sbert-wk",
            "prompt",
            "tfidf",
            "whitening",
            "flow",
            "standardize",
            "remove-top",
            "IVF",
            "Flat",
        ]
        + [
            ":",
            ",",
            "=",
            "+",
            "-",
            "template",
            "states",
            "levels",
            "start",
            "1",
            "10",
            "-1",
            "1e9",
            "9" * 30,
            "x",
            "/",
            "\x00",
        ]
        + ["SQ8", "RaBitQ", "HNSW", "é", " "]
    )

    def check(text: str) -> None:
        for parse in (parse_pooler, parse_calibration, IndexSpec.parse):
            with one_line():
                parse(text)

    return st.one_of(st.lists(words, max_size=8).map("".join), st.text(max_size=30)), check


@dataclass(frozen=True)
class Kind:
    """A kind of file: how its cases are made and checked, and how many of them a run tries."""

    prepare: Callable[[Path], tuple[Any, Check]]
    short: int = 40
    long: int = 3000


KINDS = {
    "manifest": Kind(manifests, 12),
    "sidecar": Kind(sidecars, 12, 1500),
    "plan": Kind(plans, 12, 1500),
    "locator": Kind(locators, 8),
    "shard": Kind(shard_files, 12),
    "calibration": Kind(calibrations, 30, 6000),
    "files beside a snapshot": Kind(files_beside, 15, 1500),
    "canary and ranges": Kind(small_files, 30, 6000),
    "watched queries": Kind(watch_files, 15, 3000),
    "jsonl": Kind(input_files("a.jsonl"), 30, 6000),
    "text": Kind(input_files("a.txt"), 30, 6000),
    "gzip": Kind(input_files("a.txt.gz"), 15, 6000),
    "parquet": Kind(input_files("a.parquet"), 30, 6000),
    "model": Kind(models, 8, 2000),
    "spec": Kind(specs, 100, 20_000),
}


def _run(kind: Kind, folder: Path, long: bool) -> int:
    """Try the cases of a kind in a folder; what lies beside the folder stays as it was."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text('{"format": 1}')
    inside = folder / "inside"
    inside.mkdir()
    strategy, check = kind.prepare(inside)
    before = state(outside)
    count = campaign(strategy, check, kind.long if long else kind.short, fixed=not long)
    assert state(outside) == before
    assert sorted(path.name for path in folder.iterdir()) == ["inside", "outside"]
    shutil.rmtree(inside)
    return count


@pytest.fixture(autouse=True)
def _nobody_writes_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged lease stays as it is: waiting for its writer would take most of the time."""
    monkeypatch.setattr(lease_file, "WRITING_SECONDS", 0)


@pytest.mark.parametrize("name", KINDS)
def test_a_few(name: str, tmp_path: Path) -> None:
    print(f"{name}: {_run(KINDS[name], tmp_path, long=False)} cases")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                pytest.mark.xfail(
                    reason="Arrow ends the process at some damaged footers, instead of raising"
                )
            ]
            if name == "parquet"
            else [],
        )
        for name in KINDS
    ],
)
def test_many(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counted = tmp_path / "counted"
    folder = tmp_path / "folder"
    folder.mkdir()
    child = multiprocessing.get_context("spawn").Process(
        target=_in_child, args=(name, folder, counted)
    )
    child.start()
    child.join()
    assert child.exitcode == 0, "a case ended the process"
    with capsys.disabled():
        print(f"\n{name}: {counted.read_text()} cases")


def _in_child(name: str, folder: Path, counted: Path) -> None:
    """Run the cases of a kind in a process of their own, which a library may end; their number goes
    into a file.
    """
    lease_file.WRITING_SECONDS = 0  # no fixture of the tests reaches this process
    counted.write_text(str(_run(KINDS[name], folder, long=True)))


def test_a_column_whose_name_is_no_text(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", sentences(20))
    path.write_bytes(path.read_bytes().replace(b"text", b"te\xe5t"))
    with pytest.raises(SentenceBeamError, match=r"a\.parquet"):
        list(plan_file(match_inputs(str(path))[0], "text", 500))
