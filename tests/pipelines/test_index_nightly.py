"""The index of a store that is embedded night after night, as a person sees it.

Covers pipelines/common/index_lines.py.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, files_in, ids_of, manifest_of, sentences, write_parquet
from helpers.variants import variants

from sentence_beam.transforms.store.index_entries import IndexEntry

pytest.importorskip("faiss")


@pytest.fixture
def corpus(inputs: Path) -> Callable[..., Path]:
    """Write three files of a hundred rows with ids, some texts replaced and some rows left out; the
    glob.
    """

    def write(edits: dict[int, str] | None = None, without: tuple[int, ...] = ()) -> Path:
        texts = dict(enumerate(sentences(300))) | (edits or {})
        for file in range(3):
            mine = [n for n in texts if n // 100 == file and n not in without]
            keys = [f"k{n}" for n in mine]
            write_parquet(inputs / f"{file}.parquet", [texts[n] for n in mine], key=keys)
        return inputs / "*"

    return write


OPTIONS = "--id-column key --keep-columns text --unit-tokens 200 --dtype float32".split()


def found(run: Run, store: Path, query: str, *options: object) -> list[str]:
    """The ids that a search returns, best first."""
    out = store.with_name("hits.jsonl")
    run("search", "--store", store, "--query", query, "--output", out, *options).ok()
    return [json.loads(line)["id"] for line in out.read_text().splitlines()]


@variants("partition", ["file", "content"], kept=(1,))
def test_what_was_edited_or_deleted_is_found_no_more(
    run: Run, embed: Run, store: Path, corpus: Callable[..., Path], partition: str
) -> None:
    text, every = sentences(18)[17], {f"k{n}" for n in range(300)}
    embed(corpus(), *OPTIONS, "--index", "IVF4,SQ8", "--partition", partition).ok()
    first = manifest_of(store)
    assert set(found(run, store, text, "-k", 999)) == every
    before = files_in(store, "index")
    out = embed(corpus({3: "a wholly other text"}, (17, 250)), *OPTIONS).ok().out
    line = next(line for line in out.splitlines() if line.startswith("followed"))
    assert "1 row added, 3 deleted" in line
    manifest = check_ledger(store, 298)
    assert before.items() <= files_in(store, "index").items()
    rows = found(run, store, text, "-k", 999)
    assert sorted(rows) == sorted(ids_of(store))
    assert not {"k17", "k250"} & set(rows)
    assert manifest["index"]["trained"] == first["index"]["trained"]
    assert set(found(run, store, text, "-k", 999, "--snapshot", first["run"])) == every
    run("verify", "--store", store, "--snapshot", first["run"]).ok()
    run("vacuum", "--store", store, "--keep", 1, "--older-than", "0s").ok()
    named = {path for path, _ in IndexEntry.from_json(manifest["index"]).files}
    assert set(files_in(store, "index")) == named
    embed(corpus({4: "another"}, (17, 250)), *OPTIONS).ok()
    assert sorted(found(run, store, text, "-k", 999)) == sorted(ids_of(store))
    check_ledger(store, 298)


def test_another_index_costs_no_encoding(
    run: Run, embed: Run, store: Path, corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    glob = corpus()
    embed(glob, *OPTIONS).ok()
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
        lambda job: pytest.fail("the model was loaded"),
    )
    assert "trained" not in embed(glob, "--index", "auto").ok().out
    assert check_ledger(store, 300, carried=300)["index"]["factory"] == "Flat"
    out = embed(glob, "--index", "IVF4,SQ8").ok().out
    assert "trained     again: another index was asked for" in out
    assert check_ledger(store, 300)["index"]["factory"] == "IVF4,SQ8"
    out = embed(glob).ok().out
    assert not any(word in out for word in ("trained", "followed", "rewritten"))
    for options in (("--index", "none"), ()):  # that none is wanted is remembered
        embed(glob, *options).ok()
        assert check_ledger(store, 300)["index"] is None


STEPS = ("update_rows.read", "update_rows.match", "segments.build", "decisions.conclude")


def test_a_night_that_breaks_down_in_the_index_is_done_by_the_next_run(
    run: Run,
    embed: Run,
    store: Path,
    model: Path,
    corpus: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embed(corpus(), *OPTIONS, "--index", "IVF4,SQ8").ok()
    before = (store / "manifest.json").read_bytes()
    glob = corpus({3: "another text"}, (17,))

    def broken(*work: Any) -> Any:
        raise RuntimeError("the machine went away")

    for step in STEPS:
        with monkeypatch.context() as patch:
            patch.setattr(f"sentence_beam.transforms.steps.index.{step}", broken)
            assert embed(glob).status == 1, step
        assert (store / "manifest.json").read_bytes() == before
    embed(glob, "--direct_runner_bundle_repeat=1").ok()
    index = check_ledger(store, 299)["index"]
    assert (index["change"]["added"], index["change"]["deleted"]) == (1, 2)
    assert sorted(found(run, store, "dog", "-k", 999)) == sorted(ids_of(store))
