"""Each database holds what the store has: text, kept columns and vectors, night after night, killed or not."""

import json
import random
import time

import pytest
from helpers import qdrant
from helpers.commands import Run
from helpers.killed_push import killed
from helpers.nights import space_of
from helpers.pushes import Kept, check, expected, files_of, held_by

from transforms.push import shown


def texts_of(rng: random.Random, rows: int) -> dict[str, str]:
    """Rows of a night: some are left out, some are other ones."""
    return {f"i{n}": f"text {rng.randrange(3)} o'{n}" for n in range(rows) if rng.random() < 0.8}


def test_a_table_follows_its_store(run: Run, store: Kept, to: str) -> None:
    said = json.loads(run("push", "--store", store.root, "--to", to, "--dry-run", "--json").ok().out)
    assert (said["added"], said["dry_run"], said["held"]) == (9, True, None)
    rng = random.Random(1)
    for night in range(3):
        texts = texts_of(rng, 30)
        store.commit_without_index(files_of(texts))
        out = run("push", "--store", store.root, "--to", to).ok().out
        assert f"{shown(to)} holds {len(texts)} rows of {store.manifest.run}" in out, night
        check(held_by(to), expected(files_of(texts)))
    said = json.loads(run("push", "--store", store.root, "--to", to, "--json").ok().out)
    assert (said["added"], said["changed"], said["deleted"], said["held"]) == (0, 0, 0, store.manifest.run)
    store.commit_without_index({})
    run("push", "--store", store.root, "--to", to).ok()
    assert held_by(to) == {}
    run("push", "--store", store.root, "--to", to, "--full").ok()


@pytest.mark.slow
def test_killed_at_random_moments(run: Run, store: Kept, to: str) -> None:
    rng, rows = random.Random(12), 60 if to.startswith("qdrant") else 400
    started = time.monotonic()
    run("push", "--store", store.root, "--to", to).ok()
    seconds = time.monotonic() - started
    for _ in range(12):
        store.commit_without_index(files_of(texts_of(rng, rows), 50))
        killed(store.root, to, rng.random() * seconds)
    texts = texts_of(rng, rows)
    store.commit_without_index(files_of(texts, 50))
    run("push", "--store", store.root, "--to", to).ok()
    check(held_by(to), expected(files_of(texts)))


def test_another_space_or_metric_is_refused(run: Run, store: Kept, to: str, quick) -> None:  # type: ignore[no-untyped-def]
    run("push", "--store", store.root, "--to", to).ok()
    other = Kept(quick / "other", space=space_of(8))
    other.commit_without_index(files_of({"i1": "one"}))
    for how in ((), ("--full",)):
        run("push", "--store", other.root, "--to", to, *how).failed(2, shown(to), "another space (dim differ)")
    check(held_by(to), expected(files_of({f"i{n}": f"text {n}" for n in range(9)})))


def test_columns_that_a_store_keeps_anew_come_with_all_rows(run: Run, store: Kept, to: str) -> None:
    class Bare(Kept):
        def kept(self, texts):  # type: ignore[no-untyped-def]
            return super().kept(texts).select(["text"])

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
        push = ("push", "--store", store.root, "--to", f"qdrant:{url}#docs")
        run(*push).failed(1, f"--to qdrant:{url}#docs: Unexpected Response: 403 (Forbidden)", "QDRANT_API_KEY")
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
