"""Made-up databases to push into, whose every operation may be the moment at which a push is killed
or frozen.

Neither has transactions. One refuses what a push sends as Qdrant does (by aliases), the other as
LanceDB (by versions).
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from helpers.pushes import Held

from sentence_beam.transforms.push import Pushed, PushRequest, push
from sentence_beam.transforms.push.state import Notes, PushRecord, State
from sentence_beam.transforms.push.target import Table
from sentence_beam.transforms.push.turn import Turn
from sentence_beam.transforms.store.manifest import Manifest

Key = tuple[str, int]
# more than one only where two pushes insert the same id at once
Rows = dict[Key, list[dict[str, Any]]]
Effect = Callable[[], Any]
Result = TypeVar("Result")


class KilledError(BaseException):
    """The end of a process, which cleans nothing up."""


class RefusedError(Exception):
    """The database refuses a write."""


@dataclass(frozen=True)
class Version:
    """The rows and notes of a table, none of which is changed in place, and the kind of write that
    made it.

    Without notes there is no table.
    """

    rows: Rows = field(default_factory=dict)
    notes: dict[str, str] | None = None
    kind: str = "rows"


class Database:
    """A table that several pushes write into."""

    def __init__(self) -> None:
        self.versions = [Version()]

    @property
    def now(self) -> Version:
        """The table as it is."""
        return self.versions[-1]

    @property
    def writes(self) -> int:
        """The number of writes so far."""
        return len(self.versions) - 1

    def write(self, kind: str, **changed: Any) -> None:
        """Make the table's next version."""
        self.versions.append(replace(self.now, kind=kind, **changed))

    def rows_refused(self, push: "MadeUp") -> bool:
        """Whether the rows that a push sends are refused."""
        raise NotImplementedError

    def notes_refused(self, push: "MadeUp") -> bool:
        """Whether the notes that a push sends are refused."""
        raise NotImplementedError

    def fence(self, push: "MadeUp", others: Collection[str]) -> None:
        """Refuse the rows of other pushes."""
        raise NotImplementedError

    def insert(self, push: "MadeUp", rows: Rows, key: Key, row: dict[str, Any]) -> None:
        """Put a row in the place of that with the same key."""
        rows[key] = [row]

    def held(self) -> Held:
        """What it holds, by id."""
        assert all(len(rows) == 1 for rows in self.now.rows.values()), "two rows of one id"
        return {
            i: (
                {"text": rows[0]["text"], "size": rows[0]["size"]},
                np.array(rows[0]["embedding"], np.float32),
            )
            for (i, _), rows in self.now.rows.items()
        }


class Aliased(Database):
    """A table that takes rows of pushes that were admitted, and notes of all, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.admitted: set[str] = set()

    def rows_refused(self, push: "MadeUp") -> bool:
        """Whether the push is not admitted, or no more."""
        return push.turn.push not in self.admitted

    def notes_refused(self, push: "MadeUp") -> bool:
        """Notes are never refused."""
        return False

    def fence(self, push: "MadeUp", others: Collection[str]) -> None:
        """Admit the push, and the others no more."""
        self.admitted = (self.admitted - set(others)) | {push.turn.push}


class Versioned(Database):
    """A table that refuses what is based on a version before it was restored, or notes on older
    notes.
    """

    def rows_refused(self, push: "MadeUp") -> bool:
        """Whether the table was restored since the version on which the push is based."""
        return any(version.kind == "restored" for version in self.versions[push.base + 1 :])

    def notes_refused(self, push: "MadeUp") -> bool:
        """Whether there are other notes since the version on which the push is based."""
        return any(
            version.kind in ("restored", "notes") for version in self.versions[push.base + 1 :]
        )

    def fence(self, push: "MadeUp", others: Collection[str]) -> None:
        """Restore the version that the push is based on."""
        if others:
            self.versions.append(replace(self.versions[push.base], kind="restored"))

    def insert(self, push: "MadeUp", rows: Rows, key: Key, row: dict[str, Any]) -> None:
        """Put a row in the place of that with the same key, if the push can see that one."""
        seen = key in self.versions[push.base].rows
        rows[key] = [row] if seen else [*rows.get(key, []), row]


@dataclass
class Fate:
    """What befalls a push at its n-th operation: it is killed or frozen as it sends it, or before
    it has the answer.

    A request that was `sent` by a frozen push arrives when it wakes; one that wakes may be `killed`
    right after that. The request of a killed push is `lost`, or arrives `late`.
    """

    operation: int = -1
    how: str = ""  # killed, frozen
    when: str = ""  # answered; frozen: sent, killed; killed: lost, late
    reached: threading.Event = field(default_factory=threading.Event)
    woken: threading.Event = field(default_factory=threading.Event)


class MadeUp:
    """The target of one push into a made-up database."""

    where = "memory:#docs"

    takes_parallel = False

    def __init__(self, database: Database, fate: Fate | None = None) -> None:
        self.turn = Turn(self.where, self)
        self.base = 0
        self.operations = 0
        self.late: Effect | None = None  # a request that arrives after the push was killed
        self._database, self._fate = database, fate or Fate()
        self._is_killed = False

    def _send(self, effect: Callable[[], Result]) -> Result:
        """Have an operation done, or what befalls it."""
        if self._is_killed:
            raise KilledError
        number, self.operations = self.operations, self.operations + 1
        fate = self._fate
        if number != fate.operation:
            return effect()
        self._is_killed = "killed" in (fate.how, fate.when)
        if fate.how == "frozen" and fate.when != "answered":
            self._freeze()
        if fate.how == "killed" and fate.when != "answered":
            self.late = effect if fate.when == "late" else None
            raise KilledError
        result = effect()
        if self._is_killed:
            raise KilledError
        if fate.when == "answered":
            self._freeze()
        return result

    def _freeze(self) -> None:
        self._fate.reached.set()
        assert self._fate.woken.wait(60)

    def _wrote(self) -> None:
        self.base = len(self._database.versions) - 1

    def state(self) -> State | None:
        """What the database remembers."""
        return self.turn.look()

    def read_notes(self) -> Notes | None:
        """The notes of the last version."""

        def read() -> Notes | None:
            self._wrote()
            return self._database.now.notes

        return self._send(read)

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Merge notes into what is there."""

        def write() -> None:
            if self._database.notes_refused(self):
                raise RefusedError("notes")
            merged = {**(self._database.now.notes or {}), **notes}
            self._database.write(
                "notes", notes={name: text for name, text in merged.items() if text is not None}
            )
            self._wrote()

        self._send(write)

    def fence(self, push: str, others: Collection[str]) -> None:
        """Have the rows of others refused."""

        def fence() -> None:
            self._database.fence(self, others)
            self._wrote()

        self._send(fence)

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The keys."""
        schema = pa.schema([("id", pa.string()), ("piece", pa.int32())][: len(keys)])
        found = [key for key, rows in self._database.now.rows.items() for _ in rows]
        yield pa.RecordBatch.from_pylist(
            [dict(zip(keys, key, strict=False)) for key in found], schema
        )

    def begin(self, table: Table, record: PushRecord) -> None:
        """Create the table, or take its turn."""

        def create(notes: Notes) -> None:
            def made() -> None:
                if self._database.now.notes is not None:
                    raise RefusedError("it exists")
                self._database.write("created", notes=dict(notes))
                self._wrote()

            self._send(made)

        self.turn.take(table, record, create)

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Write rows."""
        found = [((row["id"], row.get("piece", 0)), row) for row in rows.to_pylist()]

        def write(held: Rows) -> None:
            for key, row in found:
                self._database.insert(self, held, key, row)

        self._write(write)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete rows."""
        found = [(row["id"], row.get("piece", 0)) for row in keys.to_pylist()]

        def write(held: Rows) -> None:
            for key in found:
                held.pop(key, None)

        self._write(write)

    def _write(self, change: Callable[[Rows], None]) -> None:
        def write() -> None:
            if self._database.rows_refused(self):
                raise RefusedError("rows")
            rows = dict(self._database.now.rows)
            change(rows)
            self._database.write("rows", rows=rows)
            self._wrote()

        with self.turn.writing():
            self._send(write)

    def count(self) -> int:
        """The number of rows."""
        rows = sum(map(len, self._database.now.rows.values()))
        self.turn.check()
        return rows

    def finish(self) -> None:
        """Remember that the push is done."""
        self.turn.finish()


def push_to(target: MadeUp, manifest: Manifest, **options: Any) -> Pushed:
    """Push a snapshot, whatever that deletes. Raises KilledError if that befalls the push."""
    try:
        return push(lambda: manifest, target, PushRequest(**{"max_deletes": 1, **options}))
    finally:
        with contextlib.suppress(KilledError):
            target.turn.give_up()


class Pushing:
    """A push in a thread of its own, up to its end or to the moment at which it is frozen."""

    def __init__(self, manifest: Manifest, database: Database, fate: Fate | None = None) -> None:
        self.target = MadeUp(database, fate)
        self.error: BaseException | None = None
        self._fate, self._manifest = fate or Fate(), manifest
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._fate.reached.wait(0.0005):
            pass

    def _run(self) -> None:
        try:
            push_to(self.target, self._manifest)
        except BaseException as error:  # also the one that stands for a kill
            self.error = error

    @property
    def is_frozen(self) -> bool:
        """Whether it waits to be woken."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Let it go on to its end, or have its last request arrive if it was killed."""
        self._fate.woken.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        late, self.target.late = self.target.late, None
        if late is not None:
            with contextlib.suppress(RefusedError):
                late()
