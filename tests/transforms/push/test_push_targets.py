"""Each database holds what the store has: text, kept columns and vectors, night after night, killed
or not.

Covers transforms/push/lance.py.
Covers transforms/push/postgres.py.
Covers transforms/push/qdrant.py.
"""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from helpers import qdrant
from helpers.commands import Run
from helpers.nights import space_of
from helpers.pushes import Kept, check, expected, files_of, held_by

from sentence_beam.transforms.push import redact


def texts_of(rng: random.Random, rows: int) -> dict[str, str]:
    """Rows of a night: some are left out, some are other ones."""
    return {f"i{n}": f"text {rng.randrange(3)} o'{n}" for n in range(rows) if rng.random() < 0.8}


def test_a_table_follows_its_store(run: Run, store: Kept, to: str) -> None:
    said = json.loads(
        run("push", "--store", store.root, "--to", to, "--dry-run", "--json").ok().out
    )
    assert (said["added"], said["dry_run"], said["held"]) == (9, True, None)
    rng = random.Random(1)
    for night in range(3):
        texts = texts_of(rng, 30)
        store.commit_without_index(files_of(texts))
        out = run("push", "--store", store.root, "--to", to).ok().out
        assert f"{redact(to)} holds {len(texts)} rows of {store.manifest.run}" in out, night
        check(held_by(to), expected(files_of(texts)))
    said = json.loads(run("push", "--store", store.root, "--to", to, "--json").ok().out)
    assert (said["added"], said["changed"], said["deleted"], said["held"]) == (
        0,
        0,
        0,
        store.manifest.run,
    )
    store.commit_without_index({})
    run("push", "--store", store.root, "--to", to).failed(
        3, f"{len(texts)} of its {len(texts)} rows", "--max-deletes 0.5"
    )
    check(held_by(to), expected(files_of(texts)))
    run("push", "--store", store.root, "--to", to, "--max-deletes", "1").ok()
    assert held_by(to) == {}
    run("push", "--store", store.root, "--to", to, "--full").ok()


def test_another_space_or_metric_is_refused(run: Run, store: Kept, to: str, quick) -> None:  # type: ignore[no-untyped-def]
    run("push", "--store", store.root, "--to", to).ok()
    other = Kept(quick / "other", space=space_of(8))
    other.commit_without_index(files_of({"i1": "one"}))
    for how in ((), ("--full",)):
        run("push", "--store", other.root, "--to", to, *how).failed(
            2, redact(to), "another space (dim differ)"
        )
    check(held_by(to), expected(files_of({f"i{n}": f"text {n}" for n in range(9)})))


class Bare(Kept):
    """A store that keeps the text alone."""

    def kept(self, texts: list[str]) -> pa.Table:
        """The text."""
        return super().kept(texts).select(["text"])


def test_columns_of_ones_own_stay_in_lance(run: Run, store: Kept, quick: Path) -> None:
    lancedb, to = pytest.importorskip("lancedb"), f"lance:{quick}/lance#docs"
    run("push", "--store", store.root, "--to", to).ok()
    table = lancedb.connect(str(quick / "lance")).open_table("docs")
    table.add_columns(pa.field("mine", pa.string()))
    table.update(values={"mine": "kept"})
    Bare(store.root, count=1).commit_without_index(
        files_of({f"i{n}": f"other {n}" for n in range(10)})
    )
    run("push", "--store", store.root, "--to", to).ok()
    table.checkout_latest()
    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert sorted(found["i1"]) == ["embedding", "id", "mine", "text"]
    assert [found[name]["mine"] for name in ("i1", "i9")] == ["kept", None]
    assert found["i1"]["text"] == "other 1"


def test_columns_that_a_store_keeps_anew_come_with_all_rows(run: Run, store: Kept, to: str) -> None:
    files = files_of({f"i{n}": f"text {n}" for n in range(7)})
    bare = Bare(store.root)
    bare.commit_without_index(files)
    run("push", "--store", store.root, "--to", to).ok()
    Kept(store.root, count=5).commit_without_index(files)
    run("push", "--store", store.root, "--to", to).ok()
    check(held_by(to), expected(files))


def test_a_collection_behind_http(run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    with qdrant.running() as (url, client):
        push = ("push", "--store", store.root, "--to", f"qdrant:{url}#docs", "--max-deletes", "1")
        run(*push).failed(
            1, f"--to qdrant:{url}#docs: Unexpected Response: 403 (Forbidden)", "QDRANT_API_KEY"
        )
        monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
        run(*push).ok()
        later = files_of({"i1": "text 1", "i2": "other", "i30": "new"})
        store.commit_without_index(later)
        for how in ((), ("--full",)):
            run(*push, *how).ok()
            assert sorted((point.payload or {})["text"] for point in client.scroll("docs")[0]) == [
                "new",
                "other",
                "text 1",
            ]
            assert client.count("docs").count == 3


def test_a_node_that_does_not_know_the_alias_yet(
    run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    monkeypatch.setattr("sentence_beam.transforms.push.qdrant.PAUSES", (0, 0))
    with qdrant.running(late=2) as (url, client):
        run("push", "--store", store.root, "--to", f"qdrant:{url}#docs").ok()
        assert client.count("docs").count == 9
        assert client.get_aliases().aliases == []


def test_a_collection_that_is_named_by_an_alias(run: Run, store: Kept, quick: Path) -> None:
    from qdrant_client import QdrantClient, models

    run("push", "--store", store.root, "--to", f"qdrant:{quick}/qdrant#docs").ok()
    client = QdrantClient(path=str(quick / "qdrant"))
    alias = models.CreateAlias(collection_name="docs", alias_name="live")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    client.close()
    store.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(8)}))
    run("push", "--store", store.root, "--to", f"qdrant:{quick}/qdrant#live").ok()
    assert len(held_by(f"qdrant:{quick}/qdrant#docs")) == 8
