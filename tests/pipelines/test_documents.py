"""Documents cut into pieces: what is written, counted, checked, reused and refused.

Covers transforms/corpus/pieces.py.
Covers transforms/steps/embed/cutting.py.
"""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, rejects_of, rows_of, sentences
from helpers.snapshots import changed, edit_units, units_of
from helpers.variants import variants

from sentence_beam.transforms.corpus import Cutter
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.pooling import Status
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.space import row_hash
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.embed import inputs as inputs_of_units
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.shards.unit_store import UnitStore

SPEC = "budget:tokens=12"
CUT = ("--chunks", SPEC, "--id-column", "id")
BOTH = pytest.mark.parametrize("partition", ["file", "content"])
FILE_FIRST = variants("partition", ["file", "content"], kept=(0,))


def document(seed: int, n: int) -> str:
    """Some sentences in paragraphs."""
    some = random.Random(seed)
    return "".join(
        text + some.choice([". ", ".\n\n"]) for text in sentences(n, start=100 * seed)
    ).strip()


def write(path: Path, documents: dict[str, str | None], **columns: list[Any]) -> None:
    """A file of documents with their ids."""
    texts = pa.array(list(documents.values()), pa.string())
    pq.write_table(pa.table({"id": list(documents), "text": texts, **columns}), path)


def pieces_of(store: Path) -> list[tuple[Any, ...]]:
    """Every piece with all that is said of it, but its vector, in order."""
    rows = rows_of(store)
    names = sorted(set(rows[0]) - {"embedding", "norm"}) if rows else []
    return sorted(tuple(row[name] for name in names) for row in rows)


def check_pieces(store: Path, documents: dict[str, str]) -> None:
    """Check every document's pieces: numbered, cut out of its text, hashed, and none is missing or
    left over.
    """
    rows = sorted(rows_of(store), key=lambda row: (row["id"], row["piece"]))
    for name, text in documents.items():
        mine = [row for row in rows if row["id"] == name]
        assert [row["piece"] for row in mine] == list(range(len(mine))) != []
        assert {row["pieces"] for row in mine} == {len(mine)}
        assert {row["doc_hash"] for row in mine} == {row_hash(text)}
        covered = set()
        for row in mine:
            assert row["text"] == text[row["start"] : row["end"]]
            covered |= set(range(row["start"], row["end"]))
        assert all(
            place in covered for place, character in enumerate(text) if not character.isspace()
        )
    assert {row["id"] for row in rows} == set(documents)


def check_vectors(store: Path, encoder: Encoder, before: dict[str, str]) -> None:
    """Check that a piece's vector is that of its text, with what stands before it."""
    table = open_store(str(store)).dataset().to_table()
    texts = [
        before[name] + text
        for name, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)
    ]
    found = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    assert np.abs(found - encoder.encode(texts)).max() < 2e-5


DOCUMENTS = {"a": document(1, 9), "b": document(2, 1), "c": document(3, 30), "d": document(1, 9)}


@BOTH
def test_a_row_is_a_piece(run: Run, embed: Run, inputs: Path, store: Path, model: Path) -> None:
    write(inputs / "a.parquet", {**DOCUMENTS, "e": " ", "f": None}, lang=list("xyzxyz"))
    out = embed(inputs / "*", *CUT, "--keep-columns", "lang", "--max-rejects", 1).ok().out
    check_pieces(store, DOCUMENTS)
    rows, manifest = rows_of(store), manifest_of(store)
    assert manifest is not None
    assert manifest["rows"] == {"read": 6, "written": 4, "rejected": 2, "pieces": len(rows)}
    work = manifest["work"]
    assert work["embedded"] + work["duplicates"] == len(rows)
    assert work["duplicates"] == sum(row["id"] == "d" for row in rows)
    assert (manifest["options"]["chunks"], manifest["chunks"]) == (SPEC, SPEC)
    assert f"documents   4 written of 6 read, 2 rejected, in {len(rows)} pieces" in out
    assert {row["id"]: row["lang"] for row in rows} == dict(zip("abcd", "xyzx", strict=True))
    encoder = Encoder.load(str(model), dtype=manifest["space"]["dtype"])
    assert not any(row["truncated"] for row in rows)
    check_vectors(store, encoder, dict.fromkeys(DOCUMENTS, ""))
    assert f"{len(rows)} pieces" in run("verify", "--store", store).ok().out
    embed(inputs / "*").ok()
    assert manifest_of(store)["work"]["carried"] == len(rows)  # type: ignore[index]
    place = next(place for place, unit in enumerate(units_of(store)) if unit["path"])
    edit_units(store, changed(place, pieces_sum="0" * 16))
    outcome = run("verify", "--store", store)
    assert outcome.status == 1
    assert "other pieces of documents" in outcome.err
    assert "a document lacks pieces" in outcome.err


def test_what_stands_before_a_piece(embed: Run, inputs: Path, store: Path, model: Path) -> None:
    write(inputs / "a.parquet", DOCUMENTS, title=["One", None, "Three", "One"])
    embed(inputs / "*", *CUT, "--chunk-prefix", "{title}: {headings}").ok()
    check_pieces(store, DOCUMENTS)
    before = {"a": "One: ", "b": ": ", "c": "Three: ", "d": "One: "}
    rows = rows_of(store)
    assert all(row["row_hash"] == row_hash(before[row["id"]] + row["text"]) for row in rows)
    encoder = Encoder.load(str(model), dtype=manifest_of(store)["space"]["dtype"])  # type: ignore[index]
    check_vectors(store, encoder, before)
    embed(inputs / "*", "--chunk-prefix", "{title}").failed(2, "--chunk-prefix", "--reembed")


@BOTH
def test_an_edit_costs_what_it_changed_and_a_document_that_shrinks_leaves_nothing_behind(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    long, other = document(7, 40), {"b": document(8, 6)}
    write(inputs / "a.parquet", {"a": long, **other})
    embed(inputs / "*", *CUT, "--index", "Flat").ok()
    edited = long.replace(". ", ". Something that was never said before. ", 1)
    write(inputs / "a.parquet", {"a": edited, **other})
    embed(inputs / "*").ok()
    work = manifest_of(store)["work"]  # type: ignore[index]
    assert work["embedded"] <= 0.5 * work["reused"]
    check_pieces(store, {"a": edited, **other})

    before, short = len(rows_of(store)), {"a": document(7, 4), **other}
    write(inputs / "a.parquet", short)
    embed(inputs / "*").ok()
    check_pieces(store, short)
    now = len(rows_of(store))
    assert manifest_of(store)["index"]["rows"] == now < before  # type: ignore[index]
    run("verify", "--store", store).ok()
    found = open_store(str(store)).search(["anything"], k=1000)[0]
    assert {hit["id"] for hit in found} == {"a", "b"}
    told = run("diff", "--store", store, "-1", "--json").ok().out
    assert json.loads(told)["deleted"] == before - now


def test_a_document_larger_than_a_unit_is_in_several_and_a_run_goes_on_in_its_middle(
    embed: Run, run: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = {"a": document(1, 4), "b": document(2, 300), "c": document(3, 5)}
    write(inputs / "a.parquet", documents)  # type: ignore[arg-type]
    how = (*CUT, "--unit-tokens", 300)
    written, write_unit = [], UnitStore.write

    def failing(self: UnitStore, *arguments: Any) -> Any:
        if len(written) == 3:
            raise RuntimeError("the power went")
        written.append(0)
        return write_unit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(UnitStore, "write", failing)
        assert embed(inputs / "*", *how).status == 1
    assert manifest_of(store) is None
    assert "3 of" in embed(inputs / "*", *how).ok().out
    check_pieces(store, documents)
    units = [unit for unit in units_of(store) if unit["path"]]
    assert len(units) > 3
    assert max(unit["tokens"] for unit in units) < 3000
    calm = anew(run, inputs, store, *how)
    assert [unit["path"] for unit in units_of(store)] == [unit["path"] for unit in units_of(calm)]
    assert pieces_of(store) == pieces_of(calm)
    embed(inputs / "*").ok()
    assert manifest_of(store)["work"]["embedded"] == 0  # type: ignore[index]
    run("verify", "--store", store).ok()


def anew(run: Run, inputs: Path, store: Path, *options: object) -> Path:
    """A store of the same documents, made from nothing."""
    fresh, manifest = store.with_name("fresh"), manifest_of(store)
    assert manifest is not None
    how = ("--model", manifest["options"]["model"], "--partition", manifest["partition"])
    run("embed", "--input", inputs / "*", "--store", fresh, *how, *options).ok()
    return fresh


@FILE_FIRST
def test_random_edits_come_to_what_a_new_store_has(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    some = random.Random(11)
    documents: dict[str, dict[str, str]] = {"x": {}, "y": {}}
    for night in range(4):
        for file, held in documents.items():
            for name in list(held):
                if some.random() < 0.2:
                    del held[name]
                elif some.random() < 0.4:
                    parts = held[name].split(". ")
                    parts[some.randrange(len(parts))] = f"Edited in night {night}"
                    held[name] = ". ".join(parts)
            held[f"{file}{night}"] = document(some.randrange(5), some.randint(1, 20))
            write(inputs / f"{file}.parquet", held)  # type: ignore[arg-type]
        embed(inputs / "*", *CUT, "--max-deletes", 1, "--index", "Flat").ok()
    everything = documents["x"] | documents["y"]
    check_pieces(store, everything)
    again = anew(run, inputs, store, *CUT, "--index", "Flat")
    assert pieces_of(store) == pieces_of(again)
    query = next(iter(everything.values()))[:40]
    hits = [open_store(str(path)).search([query], k=5)[0] for path in (store, again)]
    first, second = ([round(hit["score"], 4) for hit in each] for each in hits)
    assert first == second
    assert run("verify", "--store", store).ok()


def test_what_is_refused(embed: Run, inputs: Path) -> None:
    write(inputs / "a.parquet", DOCUMENTS, start=[1, 2, 3, 4])  # type: ignore[arg-type]
    cut, prefix, by_content = ("--chunks", SPEC), "--chunk-prefix", ("--partition", "content")
    mean = "budget:combine=mean"
    for options, words in [
        (("--chunks", "budget:tokens=8,overlap=8"), ("overlap",)),
        ((*cut, prefix, "{nothing}"), (prefix, "no column nothing")),
        ((*cut, prefix, "word " * 200), ("document a", prefix)),
        ((*cut, prefix, "{"), (prefix, "brace")),
        ((prefix, "{text}"), (prefix, "--chunks")),
        ((*cut, "--keep-columns", "start"), ("--keep-columns start",)),
        (("--chunks", mean, *by_content), ("combine=mean", "--partition file")),
        (("--chunks", "late", prefix, "{title}"), (prefix, "--text-template")),
        (("--chunks", "late:window=2,overlap=0"), ("window=2",)),
    ]:
        embed(inputs / "*", "--id-column", "id", *options).failed(2, *words)


def test_another_spec_needs_everything_anew(embed: Run, inputs: Path, store: Path) -> None:
    write(inputs / "a.parquet", DOCUMENTS)  # type: ignore[arg-type]
    embed(inputs / "*", *CUT).ok()
    embed(inputs / "*", "--chunks", "none").failed(2, "--chunks", SPEC, "--reembed")
    embed(inputs / "*", "--chunks", "sentences", "--reembed").ok()
    check_pieces(store, DOCUMENTS)
    assert manifest_of(store)["chunks"] == "sentences"  # type: ignore[index]


def test_plan_says_how_many_pieces(run: Run, inputs: Path, model: Path) -> None:
    write(inputs / "a.parquet", DOCUMENTS)  # type: ignore[arg-type]
    out = run("plan", "--input", inputs / "*", "--model", model, "--chunks", SPEC).ok().out
    assert "documents   4 to embed" in out
    assert "pieces      about" in out
    assert f"by {SPEC}" in out


def test_search_finds_documents_by_their_best_piece(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write(inputs / "a.parquet", {**DOCUMENTS, "e": document(9, 25)})
    embed(inputs / "*", *CUT, "--index", "Flat").ok()
    sought = next(row for row in rows_of(store) if row["id"] == "c" and row["piece"] == 4)
    opened = open_store(str(store))
    hits = opened.search(sought["text"], k=3)
    assert [hit["rank"] for hit in hits] == [1, 2, 3]
    assert len({hit["id"] for hit in hits}) == 3
    assert (hits[0]["id"], hits[0]["piece"], hits[0]["start"], hits[0]["end"]) == (
        ("c", 4, sought["start"], sought["end"])
    )
    assert "doc_hash" not in hits[0]
    for hit in hits:
        assert hit["text"].split()[0] in hit["passage"] or hit["passage"]
    assert any(sentence in hits[0]["passage"] for sentence in sought["text"].split(". "))
    every = opened.search(sought["text"], k=10_000, fold="none")
    assert len(every) == len(opened)
    assert [hit["score"] for hit in every] == sorted((hit["score"] for hit in every), reverse=True)
    assert len(opened.search(sought["text"], k=10_000)) == 5
    for exact in (False, True):
        folded = opened.search(sought["text"], k=5, exact=exact)
        first = {hit["id"]: hit["score"] for hit in reversed(every)}
        assert [hit["score"] for hit in folded] == pytest.approx(
            sorted(first.values(), reverse=True), abs=1e-5
        )
    asked = ("search", "--store", store, "--query", sought["text"], "-k", 2, "--json")
    told = json.loads(run(*asked).ok().out)
    assert [hit["id"] for hit in told["results"][0]["rows"]] == [hit["id"] for hit in hits[:2]]
    told = json.loads(run(*asked, "--fold", "none").ok().out)
    assert len(told["results"][0]["rows"]) == 2
    assert "passage" not in Searcher(opened.manifest).search([sought["text"]], 3, width=0)[0][0]
    embed(inputs / "*", "--no-keep-text").ok()
    assert not {"passage", "text"} & set(open_store(str(store)).search("anything", k=2)[0])


def test_a_document_as_the_mean_of_its_pieces(
    run: Run, inputs: Path, store: Path, model: Path
) -> None:
    write(inputs / "a.parquet", DOCUMENTS)  # type: ignore[arg-type]
    how = ("embed", "--input", inputs / "*", "--store", store, "--model", model)
    spec = ("--chunks", f"{SPEC},combine=mean", "--id-column", "id")
    run(*how, *spec).ok()
    manifest = manifest_of(store)
    assert manifest is not None
    assert manifest["rows"] == {"read": 4, "written": 4, "rejected": 0}
    assert (manifest["work"]["embedded"], manifest["work"]["duplicates"]) == (3, 1)
    assert manifest["tokens"]["truncated_rows"] == 0
    encoder = Encoder.load(str(model), dtype=manifest["space"]["dtype"])
    ids, vectors = open_store(str(store)).numpy()
    cutter = Cutter(ChunksSpec.parse(SPEC), encoder.tokenizer, encoder.room)
    for name, found in zip(ids, vectors, strict=True):
        (pieces,) = cutter.cut([DOCUMENTS[name]])
        parts = encoder.embed(
            encoder.tokenize([DOCUMENTS[name][start:end] for start, end in pieces.spans])
        )
        assert not encoder.space.normalize  # so these are the pooled vectors
        assert np.abs(found - np.average(parts.vectors, axis=0, weights=pieces.tokens)).max() < 2e-5
    run(*how).ok()
    assert manifest_of(store)["work"]["carried"] == 4  # type: ignore[index]
    assert [hit["id"] for hit in open_store(str(store)).search(DOCUMENTS["b"], k=1)] == ["b"]


def test_pieces_that_know_what_stands_around_them(
    run: Run, inputs: Path, store: Path, model: Path
) -> None:
    documents = {"a": document(1, 9), "b": "A few words.", "c": document(3, 60)}
    write(inputs / "a.parquet", documents)  # type: ignore[arg-type]
    how = ("embed", "--input", inputs / "*", "--store", store, "--model", model)
    run(*how, "--chunks", "late:tokens=12,window=24", "--id-column", "id").ok()
    check_pieces(store, documents)
    table = open_store(str(store)).dataset().to_table()
    encoder = Encoder.load(str(model), dtype=manifest_of(store)["space"]["dtype"])  # type: ignore[index]
    for name, text in documents.items():
        mine = table.filter(pc.equal(table["id"], name))
        spans = list(zip(mine["start"].to_pylist(), mine["end"].to_pylist(), strict=True))
        windows = encoder.windows([text], [spans], 24, None)
        found = mine["embedding"].combine_chunks().flatten().to_numpy().reshape(len(mine), -1)
        assert np.abs(found - encoder.embed_pieces(windows).vectors).max() < 2e-5
        assert mine["row_hash"].to_pylist() == windows.keys
    write(inputs / "a.parquet", {**documents, "d": document(4, 30)})
    run(*how).ok()
    work = manifest_of(store)["work"]  # type: ignore[index]
    assert work["reused"] == len(table)
    run(*how, "--chunks", "late:tokens=12,window=20").failed(2, "--chunks", "--reembed")
    assert run("verify", "--store", store).ok()


@BOTH
def test_a_document_with_a_piece_that_has_no_vector(
    embed: Run, inputs: Path, store: Path, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(inputs / "a.parquet", DOCUMENTS)  # type: ignore[arg-type]
    finish = inputs_of_units.Texts.start

    def spoiled(self: Any, encoder: Any, *others: Any) -> Any:
        found = finish(self, encoder, *others)()
        found.status[int(np.argmax(self.tokenized.counts))] = int(Status.NONFINITE)
        return lambda: found

    monkeypatch.setattr(inputs_of_units.Texts, "start", spoiled)
    if partition == "content":
        how = ("--max-rejects", 1, "--unit-tokens", 30)
        embed(inputs / "*", *CUT, *how).failed(3, "document ", "--partition file")
        return
    embed(inputs / "*", *CUT, "--max-rejects", 1).ok()
    rejected = {row["id"]: row["reason"] for row in rejects_of(store)}
    assert set(rejected.values()) == {"non-finite vector"}
    left = {name: text for name, text in DOCUMENTS.items() if name not in rejected}
    assert len(left) == manifest_of(store)["rows"]["written"] < 4  # type: ignore[index]
    check_pieces(store, left)
