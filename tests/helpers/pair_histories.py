"""A store that goes through planned runs, its input, and a model of what it has to hold after each
of them.
"""

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from helpers.commands import Outcome, Run
from helpers.corpora import sentences
from helpers.pair_files import FORMATS, InputRow, made_ids, suffix_of, write_file
from helpers.pair_model import Expected, HeldRow, Models, State, as_kept
from helpers.pair_planner import Asked, Planner, items_of
from helpers.pair_table import LASTING, START, Item, Reason, reasons
from helpers.snapshots import files_of, group_name

from sentence_beam.transforms.base.arrow_arrays import as_values
from sentence_beam.transforms.corpus.syntax import CsvSyntax, Syntax
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest, snapshots
from sentence_beam.transforms.store.shards.precision import Coding, dequantize
from sentence_beam.transforms.store.shards.shard_columns import list_own_columns
from sentence_beam.transforms.store.verification import faults

EXACT = 2e-5  # of a vector's largest component
OFF = {"float32": EXACT, "float16": 1e-2}  # pooled vectors, by the type of the forward pass
# a file of these that is cut short cannot be read
BYTES_CUT = ("parquet", "arrow", "orc", "jsonl.gz")
SWITCHES = ("normalize", "keep-text", "hidden", "deterministic")
OF_INDEX = {
    "index SQ8": ["--index", "SQ8"],
    "index --retrain": ["--retrain"],
    "index within bytes": ["--max-bytes-per-row", "400"],
    "index within time": ["--max-latency-ms", "5"],
}


@dataclass
class History:
    """One store; `steps` are the commands so far, and `refused` counts those that ended as
    refused.
    """

    run: Run
    models: Models
    folder: Path
    planner: Planner
    steps: list[str] = field(default_factory=list)
    refused: int = 0
    past: dict[str, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.rng = random.Random(self.planner.rng.random())
        self.disk: dict[str, tuple[InputRow, ...]] = {}
        self.damaged = False
        self.made = 0

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def inputs(self) -> Path:
        return self.folder / "in"

    @property
    def manifest(self) -> Manifest:
        return open_store(str(self.store)).manifest

    @property
    def state(self) -> State | None:
        """What the store holds."""
        return self.past[self.manifest.run] if self.past else None

    def go(self, runs: int) -> None:
        """So many runs, each looked at."""
        try:
            before: set[Item] = set()
            for _ in range(runs):
                before = self.go_on(before)
            self._make_like()
        except BaseException as error:
            raise AssertionError("\n".join(["after these commands:", *self.steps])) from error

    def _make_like(self) -> None:
        """A night of the store on its last input, and another store that is made like it."""
        gates = ["--max-rejects", "1", "--max-deletes", "1", "--budget", "none"]
        # files that were appended may have names that are one name in the run of all
        if self._call("embed", [], *gates, statuses=(0, 2)).status:
            return
        old, store = self.manifest, self.folder / "like"
        self.steps.append(f"embed --like {self.store} --store {store}")
        self.run("embed", "--like", self.store, "--store", store, *gates).ok()
        new = open_store(str(store)).manifest
        assert new.options == old.options
        assert (new.input.globs, new.partition, new.unit_tokens) == (
            old.input.globs, old.partition, old.unit_tokens,
        )  # fmt: skip
        assert new.space == old.space
        asked = [one.index and one.index.request for one in (new, old)]
        assert asked[0] == asked[1]
        names = ["id", *old.options.keep_columns]
        names += [name for name in ("piece",) if old.rows.pieces is not None]
        tables = [open_store(one.root).dataset().to_table(names) for one in (new, old)]
        assert tables[0].schema.types == tables[1].schema.types
        rows = [Counter(map(str, table.to_pylist())) for table in tables]
        assert rows[0] == rows[1]

    def go_on(self, before: set[Item]) -> set[Item]:
        """One more run; its items."""
        state = self.state
        if state is None:
            asked = self.planner.first_run()
            self.embed(asked)
            return items_of(asked, None)
        asked = self.planner.next_run(state.options, state.limited, before)
        if "command" in asked:
            self.command(asked["command"])
        else:
            self.embed(asked)
        self.planner.done(asked, state.options, state.limited, before)
        return items_of(asked, state.options)

    def embed(self, asked: Asked) -> None:
        """A run of `embed`, on input as it is then; one that is refused leaves everything as it
        was.
        """
        state, disk = self.state, dict(self.disk)
        now = {
            **(state.options if state else START),
            **{k: v for k, v in asked.items() if k in LASTING},
        }
        self._befalls(asked, now)
        named = self._appended(asked, now)
        bad = self._make_bad(asked.get("bad file"), now)
        damaged = self._damage(asked["damage"]) if "damage" in asked else None
        patterns = (
            [self._pattern(name) for name in {*named, *bad}]
            if "append" in asked
            else [f"{self.inputs}/**"]
        )
        why = reasons(state.options if state else None, bool(state and state.limited), asked)
        if _rows_in(self.disk) > _rows_in(disk) / 4:  # few files may have gone, or small ones
            why = [_unsure(one) if one.options == {"deletes"} else one for one in why]
        outcome = self._call("embed", why, "--input", *patterns, *self._flags(asked, now, state))
        if outcome.status == 0:
            becomes = self._after(asked, now, named, bad)
            self.damaged = damaged is not None
            self._mend(bad, now)
            self._committed(becomes)
        else:
            self.disk = disk
            self._mend(bad, now)
            self._write(now if state is None else state.options)
            if damaged is not None:
                damaged[0].write_bytes(damaged[1])

    def command(self, name: str) -> None:
        """Another command that writes."""
        state, options = self.state, dict(self.state.options)
        if name in ("rollback", "vacuum"):
            return self._over_snapshots(name)
        if name.startswith("index"):
            arguments = [*OF_INDEX[name], "--metric", options["metric"]]
            if name == "index SQ8":
                options["index"] = "SQ8"
            elif options["index"] == "none":
                options["index"] = "auto"
        else:
            options["calibration"] = "none" if name.endswith("none") else "remove-top:2"
            arguments = ["--calibration", self.models.calibration_folder(options)]
        self._call(name.split()[0], [], *arguments)
        self._committed(replace(state, options=options))

    def _over_snapshots(self, name: str) -> None:
        if name == "vacuum":
            self._call("vacuum", [], "--keep", "2")
            self.past = {run: self.past[run] for run in list(self.past)[-2:]}
            assert set(snapshots(str(self.store))) == set(self.past)
            return self._check(self.state)
        earlier = list(self.past)[-2:][0]
        if earlier == self.manifest.run:
            self._call("rollback", [], "-1", statuses=(2,))
            return
        layout, restored = self.state.options["layout"], self.past[earlier]
        outcome = self._call("rollback", [], "-1", statuses=(0, 2) if self.damaged else (0,))
        if outcome.status == 0:
            self._committed(restored)
            if layout != restored.options["layout"]:
                # the options are to say what is on disk
                self.disk = self._laid_out(restored.options["layout"])

    def _call(
        self, name: str, why: list, *arguments: object, statuses: tuple[int, ...] | None = None
    ) -> Outcome:
        """Run a command, which ends as it should: it succeeds, or is refused with one line and
        changes no snapshot.
        """
        self.steps.append(" ".join(map(repr, [name, *arguments])))
        sure = [reason for reason in why if reason.sure]
        allowed = statuses or (*([] if sure else [0]), *(reason.status for reason in why))
        path = self.store / "manifest.json"
        before = path.read_bytes() if path.exists() else None
        outcome = self.run(name, "--store", self.store, *arguments)
        assert outcome.status in allowed, (outcome, why)
        if outcome.status == 0:
            return outcome.ok()
        self.refused += 1
        outcome.failed(outcome.status)
        assert (path.read_bytes() if path.exists() else None) == before
        return outcome

    def _committed(self, becomes: State) -> None:
        self.past[self.manifest.run] = becomes
        self._check(becomes)

    # What befalls the input.

    def _befalls(self, asked: Asked, now: Mapping[str, str]) -> None:
        """The input as it is for a run, written."""
        if not self.disk or "layout" in asked:
            self.disk = self._laid_out(now["layout"])
        if "night" in asked:
            getattr(self, f"_{asked['night']}")(now)
        if "deletes" in asked:
            first, *others = self._visible
            for name in others:
                del self.disk[name]
            if not others:
                rows = self.disk[first]
                self.disk[first] = rows[: max(1, len(rows) // 4)]
        if asked.get("append") == "changed":
            self._edited(now)
        elif "append" in asked:
            self._added(now)
        self._write(now)

    @property
    def _visible(self) -> list[str]:
        return [name for name in sorted(self.disk) if not name.startswith(".")]

    def _laid_out(self, layout: str) -> dict[str, tuple[InputRow, ...]]:
        """The rows there are in files of this kind, in as many as it has."""
        rows = [row for name in self._visible for row in self.disk[name]] or [
            self._row() for _ in range(36)
        ]
        # The first file has rows that every kind of run rejects, or some of them.
        special = [replace(self._row(), text=None, title=None), replace(self._row(), price="x")]
        special.append(replace(self._row(), id=None))
        if not self.disk:
            rows[1:1] = special
        count, ending = (18 if layout == "small" else 5), suffix_of(layout)
        size = max(1, -(-len(rows) // count))
        files = {
            f"{chr(ord('a') + n)}{ending}": tuple(rows[n * size : (n + 1) * size])
            for n in range(count)
        }
        hidden = next(
            (rows for name, rows in self.disk.items() if name.startswith(".")),
            (self._row(), self._row()),
        )
        return {**files, f".h{ending}": hidden}

    def _row(self) -> InputRow:
        self.made += 1
        first, second, third = (sentences(1, self.rng.randrange(200))[0] for _ in range(3))
        text = first if self.rng.random() < 0.5 else f"{first}. {second}. {third}."
        return InputRow(
            f"i{self.made}", text, f"big {self.rng.choice(['dog', 'cat'])}", "de", str(self.made)
        )

    def _changeable(self) -> str:
        """A file that may change: neither the first one nor the one that may be bad."""
        return self.rng.choice(
            [name for name in self._visible[2:] if self.disk[name]] or self._visible[-1:]
        )

    def _edited(self, now: Mapping[str, str]) -> None:
        name = self._changeable()
        rows = [*self.disk[name], self._row()]
        rows[0] = replace(rows[0], text=self._row().text, lang="fr")
        self.disk[name] = tuple(rows)

    def _added(self, now: Mapping[str, str]) -> None:
        self.made += 1
        self.disk[f"n{self.made}{suffix_of(now['layout'])}"] = (self._row(), self._row())

    def _removed(self, now: Mapping[str, str]) -> None:
        if len(self._visible) > 4:
            del self.disk[self._changeable()]

    def _renamed(self, now: Mapping[str, str]) -> None:
        name = self._changeable()
        self.made += 1
        self.disk[f"m{self.made}{suffix_of(now['layout'])}"] = self.disk.pop(name)

    def _moved(self, now: Mapping[str, str]) -> None:
        one, other = self._changeable(), self._visible[0]
        rows = self.disk[one]
        self.disk[one], self.disk[other] = rows[1:], (*self.disk[other], *rows[:1])

    def _write(self, now: Mapping[str, str]) -> None:
        """Write what is not on disk as it should be, and remove the rest."""
        there = {path.name for path in self.inputs.iterdir()} if self.inputs.is_dir() else set()
        for name in there - self.disk.keys():
            (self.inputs / name).unlink()
        delimiter = ";" if now["delimiter"] == ";" else None
        syntax = Syntax(delimiter, CsvSyntax.parse(now["csv"]), now["json-rows"] or None)
        for name, rows in self.disk.items():
            path = self.inputs / name
            before = path.read_bytes() if path.exists() else None
            if before != self._bytes(name, rows, syntax):
                write_file(path, rows, syntax)

    def _bytes(self, name: str, rows: tuple[InputRow, ...], syntax: Syntax) -> bytes:
        made = self.folder / "made" / name
        write_file(made, rows, syntax)
        return made.read_bytes()

    def _appended(self, asked: Asked, now: Mapping[str, str]) -> set[str]:
        """The files that a run names which appends: those that the store does not have as
        they are.
        """
        if "append" not in asked:
            return set()
        assert self.state is not None
        held = self.state.files
        return {
            name
            for name in self._visible
            if [h.row for h in held.get(name, ())] != list(self.disk[name])
        }

    def _pattern(self, name: str) -> str:
        return f"{self.inputs}/[{name[0]}]{name[1:]}"

    def _make_bad(self, kind: str | None, now: Mapping[str, str]) -> set[str]:
        """Make a file one that cannot be read: the second of those of which the store has rows,
        the only one, or a new one. Without rows in the store a file may be left out of any run.
        """
        if kind is None:
            return set()
        known = [name for name in self._visible if self.state and self.state.files.get(name)]
        name = (
            f"zz{suffix_of(now['layout'])}" if kind == "new" else (known or self._visible)[:2][-1]
        )
        path = self.inputs / name
        path.unlink(missing_ok=True)
        if now["layout"] in BYTES_CUT:
            path.write_bytes(self._bytes(name, (self._row(),), None)[:-9])
        else:
            path.symlink_to(self.folder / "nothing")
        return {name}

    def _mend(self, bad: set[str], now: Mapping[str, str]) -> None:
        for name in bad:
            (self.inputs / name).unlink()
        self._write(now)

    def _damage(self, how: str) -> tuple[Path, bytes]:
        """Remove or cut a shard of the current snapshot; the file and what it held."""
        path = Path(self.rng.choice(sorted(self.manifest.shard_paths)))
        data = path.read_bytes()
        path.unlink()
        if how == "cut":
            path.write_bytes(data[:-5])
        return path, data

    # What is said to the command.

    def _flags(self, asked: Asked, now: Mapping[str, str], state: State | None) -> list[str]:
        flags: list[str] = []
        said = set()
        for name, value in asked.items():
            if name in LASTING and (state is None or state.options[name] != value):
                flags += self._lasting(name, value, now)
                said.add(name)
        follows = {
            "calibration": ("model", "pooler", "prompt", "max-tokens", "dtype", "chunks"),
            "format": ("layout",),
        }
        for name, others in follows.items():
            if name not in said and any(other in asked for other in others):
                flags += self._lasting(name, now[name], now)
        flags += ["--max-bad-files", "1"] if asked.get("bad file") in ("known", "new") else []
        flags += ["--max-deletes", "1"] if asked.get("deletes") != "too many" else []
        flags += ["--max-rejects", "0" if "rejects" in asked else "1"]
        flags += [f"--{name}" for name in ("append", "reembed") if name in asked]
        flags += ["--limit", asked["limit"]] if "limit" in asked else []
        flags += ["--max-drift", "0.01"] if "drift" in asked else []
        return flags

    def _lasting(self, name: str, value: str, now: Mapping[str, str]) -> list[str]:
        """The flags of one lasting option."""
        if name in SWITCHES:
            return [f"--{name}" if value == "yes" else f"--no-{name}"]
        if name == "model":
            return ["--model", str(self.models.paths[value])]
        if name == "calibration":
            return ["--calibration", self.models.calibration_folder(now)]
        if name == "text":
            return ["--text-template" if "{" in value else "--text-column", value]
        if name == "format":
            return [
                "--format",
                "auto" if value == "auto" else FORMATS.get(now["layout"], now["layout"]),
            ]
        if name == "layout" or value in ("told", "all"):
            return []
        flag = "--dim" if name == "truncate-dim" else f"--{name}"
        return [flag, value]

    # What the store has to hold.

    def _after(self, asked: Asked, now: Mapping[str, str], named: set[str], bad: set[str]) -> State:
        """What the store holds after a run."""
        state = self.state_before
        held = dict(state.files) if state else {}
        names = (
            named
            if "append" in asked
            else [n for n in self.disk if now["hidden"] == "yes" or n[0] != "."]
        )
        files = dict(held) if "append" in asked else {}
        for name in names:
            ids, rows = made_ids(name, self.disk[name]), self.disk[name]
            files[name] = tuple(map(HeldRow, ids, rows))
        for name in bad:
            files |= self._as_it_was(name, held, files)
        self._wait(files, held)
        if "limit" in asked:
            files = _limited(files, int(asked["limit"]))
        return State(now, files, "limit" in asked)

    def _wait(
        self,
        files: dict[str, tuple[HeldRow, ...]],
        held: Mapping[str, tuple[HeldRow, ...]],
    ) -> None:
        """Files that wait for a later run have the rows that they had."""
        for file in files_of(self.store):
            if file["pending_bytes"] is not None:
                files.pop(file["path"])
                if file["path"] in held:
                    files[file["path"]] = held[file["path"]]

    @property
    def state_before(self) -> State | None:
        """What the snapshot before the current one held."""
        previous = self.manifest.previous
        return self.past[previous] if previous else None

    def _as_it_was(
        self,
        bad: str,
        held: Mapping[str, tuple[HeldRow, ...]],
        files: dict[str, tuple[HeldRow, ...]],
    ) -> dict[str, tuple[HeldRow, ...]]:
        """The files that stay as they were since one cannot be read; others of its group are taken
        out of `files`.
        """
        files.pop(bad, None)
        if bad not in held:
            return {}
        manifest = self.manifest
        before = open_store(str(self.store), manifest.previous).manifest
        groups = {file["path"]: file["group"] for file in files_of(self.store, before.data)}
        if not groups[bad]:
            return {bad: held[bad]}
        bits = int(groups[bad].partition("-")[0][1:])
        left_out = {file["path"] for file in files_of(self.store) if not file["size"]}
        for name in [name for name in files if name not in groups]:
            if group_name(name, bits) == groups[bad] and name in left_out:
                del files[name]
        return {
            name: held[name]
            for name, group in groups.items()
            if group == groups[bad] and name in held
        }

    # Whether it does.

    def _check(self, state: State) -> None:
        """The current snapshot is what the model says, and whole."""
        manifest, rows = self.manifest, self.models.rows(state)
        options = state.options
        counted = manifest.rows
        assert (counted.read, counted.written, counted.rejected) == (
            rows.written + rows.rejected, rows.written, rows.rejected,
        )  # fmt: skip
        assert sum(vars(manifest.work).values()) == rows.counts.total()
        assert not list(faults(manifest))
        assert (manifest.partition, manifest.unit_tokens) == (
            options["partition"],
            int(options["unit-tokens"]),
        )
        space = self.models.space(options)
        assert not space.differences(manifest.space)
        assert space.id == manifest.space.id
        found: Counter[Expected] = Counter()
        for path in manifest.shard_paths:
            found += self._checked_shard(Path(path), options, space, rows.pooled)
        assert found == rows.counts
        self._check_search(manifest, options)

    def _checked_shard(
        self,
        path: Path,
        options: Mapping[str, str],
        space: Space,
        expected: Mapping[tuple[str, int], np.ndarray],
    ) -> Counter[Expected]:
        """The rows of a shard, whose vectors are those expected."""
        table = pq.read_table(path).combine_chunks()
        coding = Coding.from_shard(table.schema.metadata, str(path))
        assert coding.space.id == space.id
        kept = [
            name for name in table.schema.names if name not in list_own_columns(table.schema.names)
        ]
        rows = table.to_pylist()
        keys = [(row["id"], row.get("piece", 0)) for row in rows]
        found = Counter(
            Expected(*key, as_kept({n: row[n] for n in kept}))
            for key, row in zip(keys, rows, strict=True)
        )
        assert set(keys) <= expected.keys()
        stored = table["embedding"].combine_chunks()
        pooled = _pooled(table, coding.decode(stored), options)
        wanted = np.array([expected[key] for key in keys])
        _same(pooled, wanted, OFF[options["dtype"]])
        final = self.models.final(pooled, options)
        codes = dequantize(as_values(stored), options["precision"], coding.space.dim, coding.ranges)
        if options["precision"] in ("binary", "ubinary"):
            sure = np.abs(final) > EXACT * np.abs(final).max()
            assert ((codes > 0) == (final > 0))[sure].all()
        elif coding.ranges is not None:
            inside = np.clip(final, coding.ranges.low, coding.ranges.high)
            assert (
                np.abs(codes - inside) <= 0.51 * coding.ranges.step + EXACT * np.abs(final).max()
            ).all()
        else:
            _same(codes, final, EXACT if options["precision"] == "float32" else 2e-3)
        return found

    def _check_search(self, manifest: Manifest, options: Mapping[str, str]) -> None:
        """The index is of the kind asked for and has every row; what is found is nearest."""
        index = manifest.data["index"]
        ids, vectors = open_store(str(self.store)).numpy()
        if not len(ids):  # no file is left that can be read
            assert index is None
            return
        assert (index is None) == (options["index"] == "none")
        if index is not None:
            assert index["metric"] == options["metric"], index["request"]
            kind = {"auto": "Flat"}.get(options["index"], options["index"])
            assert index["factory"] == kind
            searcher = Searcher(
                Manifest.from_data(
                    manifest.root, {**manifest.data, "index": {**index, "nprobe": 64}}
                )
            )
            (hits,) = searcher.rows.describe(searcher.nearest(vectors[:1], 10_000))
            assert Counter(hit["id"] for hit in hits) == Counter(ids)
        if index is None or index["factory"] == "Flat":
            (hits,) = Searcher(manifest).search(vectors=vectors[-1:], k=5, fold="none", width=0)
            scores = _scores(vectors, vectors[-1], manifest.metric)
            nearest = np.sort(scores)[:5] if manifest.metric == "l2" else np.sort(scores)[::-1][:5]
            assert np.allclose([hit["score"] for hit in hits], nearest, rtol=1e-3, atol=1e-3)


def _pooled(table: object, final: np.ndarray, options: Mapping[str, str]) -> np.ndarray:
    """The pooled vectors of a shard."""
    if "pooled" in table.schema.names:
        return as_values(table["pooled"].combine_chunks())
    return final * table["norm"].to_numpy()[:, None] if options["normalize"] == "yes" else final


def _same(found: np.ndarray, wanted: np.ndarray, off: float) -> None:
    """Check that each row is within a part of its largest component."""
    assert (np.abs(found - wanted).max(axis=1) <= off * np.abs(wanted).max(axis=1)).all()


def _scores(vectors: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    if metric == "l2":
        return ((vectors - query) ** 2).sum(axis=1)
    if metric == "ip":
        return vectors @ query
    return vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)


def _rows_in(disk: Mapping[str, tuple[InputRow, ...]]) -> int:
    """The rows of the files that are not hidden."""
    return sum(len(rows) for name, rows in disk.items() if not name.startswith("."))


def _unsure(reason: Reason) -> Reason:
    return replace(reason, sure=False)


def _limited(
    files: Mapping[str, tuple[HeldRow, ...]], limit: int
) -> dict[str, tuple[HeldRow, ...]]:
    """The first rows of files in the order of their names."""
    kept = {}
    for name in sorted(files):
        kept[name] = files[name][:limit]
        limit -= len(kept[name])
    return kept
