"""Units of `embed` and windows of `EmbedRows`: the next is with the model before the last is
through.

Covers transforms/steps/embed/unit_embedder.py.
"""

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.tiny_models import TEXTS, save_tiny_model

from sentence_beam.transforms.corpus import UnitRows
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Machine, Recipe
from sentence_beam.transforms.steps.embed.element_rows import RowEmbedder, RowsJob
from sentence_beam.transforms.steps.embed.unit_embedder import UnitEmbedder
from sentence_beam.transforms.store.runs.reused_vectors import NOTHING

UNITS = 5


class Noted:
    """An encoder that notes what it is handed and what is asked of it, and gives nothing before
    more is handed over.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._changed = encoder, threading.Condition()
        self.events: list[str] = []
        self.started = self.finished = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def start(self, *given: Any) -> Any:
        return self._noted(self._encoder.start(*given))

    def start_pieces(self, *given: Any) -> Any:
        return self._noted(self._encoder.start_pieces(*given))

    def _noted(self, passing: Any) -> Any:
        with self._changed:
            self.events.append(f"{self.started} started")
            self.started += 1
            self._changed.notify_all()
        return passing

    def finish(self, passing: Any) -> Any:
        wanted = min(UNITS, self.finished + 2)
        with self._changed:
            assert self._changed.wait_for(lambda: self.started >= wanted, timeout=60), (
                "the next one is not handed over"
            )
        found = self._encoder.finish(passing)
        self.events.append(f"{self.finished} through")
        self.finished += 1
        return found

    def check(self) -> None:
        """All are handed over and through in order; at most two wait behind the one that the model
        is at.
        """
        for what in ("started", "through"):
            assert [event for event in self.events if what in event] == [
                f"{n} {what}" for n in range(UNITS)
            ]
        for n in range(UNITS - 1):
            assert self.events.index(f"{n + 1} started") < self.events.index(f"{n} through")
        for n in range(UNITS - 4):
            assert self.events.index(f"{n} through") < self.events.index(f"{n + 4} started")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model("bert", tmp_path_factory.mktemp("models") / "tiny"))


@pytest.mark.parametrize("chunks", ["none", "late:tokens=8"])
def test_a_window_of_rows_is_handed_over_before_the_last_is_through(
    model: str, chunks: str
) -> None:
    recipe = Recipe.from_options({"model": model, "dtype": "float32", "chunks": chunks})
    job = RowsJob.from_recipe(recipe, Machine("cpu", 16), "text")
    encoder, threads = Noted(job.load()), set()
    rows = RowEmbedder(
        job, lambda: encoder, dict, lambda *_: threads.add(threading.get_ident()), window_tokens=1
    )  # type: ignore[arg-type, return-value]
    texts = [" ".join(TEXTS[n : n + 8]) for n in range(UNITS)]
    results = [
        result for n, text in enumerate(texts) for result in rows.add({"n": n, "text": text}, n)
    ]
    results += rows.finish()
    encoder.check()
    assert [result.place for result in results] == sorted(result.place for result in results)
    assert threads == {threading.get_ident()}, "an engine counts by thread"
    if chunks == "none":
        expected = job.load().encode(texts)
        np.testing.assert_allclose(
            [result.value["embedding"] for result in results], expected, rtol=0, atol=2e-5
        )


def test_what_fails_in_a_window_ends_the_bundle(model: str) -> None:
    job = RowsJob.from_recipe(Recipe(model, dtype="float32"), Machine("cpu"), "text")
    encoder = job.load()

    def broken(_: Any) -> Any:
        raise RuntimeError("the device is gone")

    encoder.finish = broken  # type: ignore[method-assign]
    rows = RowEmbedder(job, lambda: encoder, dict, lambda *_: None, window_tokens=1)
    with pytest.raises(RuntimeError, match="the device is gone"):
        list(rows.add({"text": "dog"}, 0)), list(rows.finish())


@dataclass(frozen=True)
class Written:
    """A unit's record, as far as the embedder knows it."""

    name: str
    vectors: np.ndarray
    measures: Any = None


@pytest.mark.parametrize("late", [False, True])
def test_a_unit_is_handed_over_before_the_last_is_through(model: str, late: bool) -> None:
    encoder = Noted(Encoder.load(model, dtype="float32", device="cpu", tokens_per_batch=16))
    units = [[f"{text} {n}" for text in TEXTS] for n in range(UNITS)]
    rows = _late_rows if late else _rows
    written = list(
        _embedder(encoder).embed(rows(encoder, n, texts) for n, texts in enumerate(units))
    )
    encoder.check()
    assert [record.name for record in written] == [str(n) for n in range(UNITS)]
    for record, texts in zip(written, units, strict=True):
        np.testing.assert_allclose(record.vectors, encoder.encode(texts), atol=2e-5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("late", [False, True])
def test_units_under_way_are_dropped_at_ctrl_c(model: str, late: bool) -> None:
    encoder = Encoder.load(model, dtype="float32", device="cpu", tokens_per_batch=16)
    start = encoder.start_pieces if late else encoder.start
    runner = encoder.replicas[0].forward.runner
    run = runner.run
    cancelled: list[threading.Event] = []
    held = []

    def noted(unit: Any, *given: Any) -> Any:
        cancelled.append(given[-1])
        return start(unit, *given)

    def holding(batch: Any) -> Any:
        if len(batch.rows) == 1:  # not of the first unit
            held.append(batch)
            assert cancelled[0].wait(60)
        return run(batch)

    setattr(encoder, "start_pieces" if late else "start", noted)
    runner.run = holding
    many = [f"dog {'cat ' * 20} {n}" for n in range(40)]
    rows = _late_rows if late else _rows
    units = (rows(encoder, n, many if n else ["dog", "cat"]) for n in range(UNITS))
    records: Any = _embedder(encoder).embed(units)
    assert next(records).name == "0"
    with pytest.raises(KeyboardInterrupt):
        records.throw(KeyboardInterrupt)
    assert len(held) < len(many)


def _embedder(encoder: Any) -> UnitEmbedder:
    given = {"space": encoder.space, "ranges": None, "finished": lambda _: None, "write": _write}
    store: Any = SimpleNamespace(**given)
    last: Any = SimpleNamespace(
        open_shards_of=lambda _: SimpleNamespace(find=lambda _: NOTHING), is_final=True
    )
    finisher: Any = SimpleNamespace(moved=lambda _: ())
    return UnitEmbedder(0, store, lambda: encoder, lambda *_: None, last, finisher)


def _write(unit: Any, vectors: Any, *_: Any) -> Written:
    return Written(unit.rows.name, vectors.embedding)


def _rows(_: Any, number: int, texts: list[str]) -> UnitRows:
    ids, places = [str(n) for n in range(len(texts))], list(range(len(texts)))
    return UnitRows(
        str(number), None, 0, None, ids, texts, places, None, [], files=["a"] * len(texts)
    )


def _late_rows(encoder: Any, number: int, texts: list[str]) -> UnitRows:
    rows = _rows(encoder, number, texts)
    windows = encoder.windows(texts, [[(0, len(text))] for text in texts])
    return UnitRows(**{**vars(rows), "windows": windows})
