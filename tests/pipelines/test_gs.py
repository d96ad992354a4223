"""Stores and inputs on gs://: what a folder of this machine gives, gs:// gives too, in few requests."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_lines, write_parquet

from transforms.store import storage

FIELDS = ("unit", "path", "rows", "read", "rejected", "tokens", "bytes", "sha256", "rejects")


def upload(folder: Path, root: str) -> None:
    """Copy a folder's files, over what stands there."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        storage.overwrite(f"{root}/{path.relative_to(folder)}", path.read_bytes())


def manifest(root: str) -> dict[str, Any]:
    """The current manifest of a store."""
    return json.loads(storage.read_bytes(f"{root}/manifest.json"))


def shards(data: dict[str, Any] | None) -> list[tuple[Any, ...]]:
    """What a manifest says of its shards that must not depend on where they are."""
    assert data is not None
    return [tuple(unit[name] for name in FIELDS) for unit in data["shards"]]


@pytest.fixture
def corpus(inputs: Path) -> Path:
    """Three kinds of files, one with a row that is rejected."""
    write_parquet(inputs / "a.parquet", sentences(300), row_group_size=100)
    write_lines(inputs / "deep" / "b.txt.gz", sentences(50, 300))
    write_lines(inputs / "c.jsonl", [*(json.dumps({"text": text}) for text in sentences(20, 350)), "{}"])
    return inputs


@pytest.mark.parametrize("partition", ["file", "content"])
def test_a_store_on_gs_is_the_one_on_disk(
    run: Run, model: Path, corpus: Path, store: Path, gs: str, partition: str
) -> None:
    upload(corpus, f"{gs}/in")
    how = ("--model", model, "--partition", partition, "--unit-tokens", 2000, "--max-rejects", 0.1)
    run("embed", "--input", corpus / "**", "--output", store, *how).ok()
    run("embed", "--input", f"{gs}/in/**", "--output", f"{gs}/store", *how).ok()
    here, there = manifest_of(store), manifest(f"{gs}/store")
    assert here is not None
    assert len(here["shards"]) > 1
    assert shards(there) == shards(here)
    assert [there[name] for name in ("rows", "work", "space")] == [here[name] for name in ("rows", "work", "space")]
    assert {file["source"] for file in there["input"]["files"]} == {
        f"{gs}/in/{name}" for name in ("a.parquet", "c.jsonl", "deep/b.txt.gz")
    }
    run("verify", "--store", f"{gs}/store").ok()
    again = run("embed", "--input", f"{gs}/in/**", "--output", f"{gs}/store", *how).ok()
    assert manifest(f"{gs}/store")["work"] == {"embedded": 0, "reused": 0, "duplicates": 0, "carried": 370}, again
    assert shards(manifest(f"{gs}/store")) == shards(here)
