"""A push that writes several units at once."""

import threading
from typing import Any

import pytest
from helpers import qdrant
from helpers.commands import Run
from helpers.pushes import Kept

UNITS = 3  # of the store

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")


def test_units_are_written_at_once(run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    from transforms.push.qdrant import QdrantTarget

    together = threading.Barrier(UNITS, timeout=60)
    upsert = QdrantTarget.upsert

    def meeting(self: QdrantTarget, rows: Any) -> None:
        together.wait()  # fails unless all units are here
        upsert(self, rows)

    monkeypatch.setattr(QdrantTarget, "upsert", meeting)
    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    with qdrant.running() as (url, client):
        run("push", "--store", store.root, "--to", f"qdrant:{url}#docs", "--parallel", UNITS).ok()
        assert client.count("docs").count == 9
        assert client.get_aliases().aliases == []


def test_the_first_error_ends_it_and_the_next_push_corrects_it(
    run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transforms.push.qdrant import QdrantTarget

    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    upsert = QdrantTarget.upsert
    calls = iter(range(99))

    def failing(self: QdrantTarget, rows: Any) -> None:
        if next(calls) == 1:
            raise OSError("the network is gone")
        upsert(self, rows)

    with qdrant.running() as (url, client):
        push = ("push", "--store", store.root, "--to", f"qdrant:{url}#docs", "--parallel", 2)
        with monkeypatch.context() as patch:
            patch.setattr(QdrantTarget, "upsert", failing)
            outcome = run(*push)
            assert outcome.status == 1
            assert "the network is gone" in outcome.err
        run(*push).ok()
        assert client.count("docs").count == 9


def test_a_table_that_one_connection_writes(run: Run, store: Kept) -> None:
    push = ("push", "--store", store.root, "--to", f"lance:{store.root}-lance#docs")
    run(*push, "--parallel", 2).failed(2, "--parallel is for a server of Qdrant", "leave it out")
