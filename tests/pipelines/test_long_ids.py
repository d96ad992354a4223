"""Ids of thousands of characters, which also look like paths: no command breaks, and no file is
named by them.
"""

from helpers.commands import Run
from helpers.corpora import sentences, write_parquet

from sentence_beam.transforms.store import open_store

LENGTH = 10_000


def ids(rows: int) -> list[str]:
    """So many ids, each of LENGTH characters and more."""
    parts = ("../", "文", "a\n\t|")
    return [f"{parts[i % 3] * (LENGTH // len(parts[i % 3]))}{i}" for i in range(rows)]


def test_long_ids_go_through_every_command(run: Run, embed: Run, inputs, store, tmp_path) -> None:
    texts, named = [*sentences(29), ""], ids(30)
    glob = write_parquet(inputs / "a.parquet", texts, id=named)
    how = ("--id-column", "id", "--max-rejects", "0.5")
    embed(glob, *how, "--index", "auto").ok()
    write_parquet(inputs / "a.parquet", [*texts[5:], "a new one"], id=[*named[5:], named[0]])
    embed(glob, *how).ok()
    found = open_store(str(store)).search("a new one", k=1)[0]
    assert (found["id"] if isinstance(found, dict) else found[0]["id"]) == named[0]
    commands = [
        ("search", "--query", "a dog"), ("search", "--query", "a dog", "--output", tmp_path / "s.jsonl"), ("diff",),
        ("diff", "--output", tmp_path / "d.parquet"), ("rejects",), ("rejects", "--output", tmp_path / "r.jsonl"),
        ("history",), ("verify",), ("report", "--output", tmp_path / "r.html"), ("index", "--retrain"), ("vacuum", "--keep", 1),
    ]  # fmt: skip
    for name, *options in commands:
        run(name, "--store", store, *options).ok()
    run(
        "pairs",
        "--input",
        glob,
        "--id-column",
        "id",
        "--model",
        open_store(str(store)).manifest.options.model,
    ).ok()
    assert max(len(path.name) for path in store.rglob("*")) < 120
