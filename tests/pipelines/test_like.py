"""embed and plan: the input of the last run, a store like another one, and their answers beside
each other.

Covers pipelines/common/answers_of_stores.py.
Covers pipelines/common/origin_lines.py.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_lines, write_parquet

import sentence_beam as sb
from sentence_beam.pipelines.common.origin_lines import describe_likeness
from sentence_beam.transforms.steps.options.likeness import Likeness
from sentence_beam.transforms.store import open_store


@pytest.fixture
def old(run: Run, embed: Run, store: Path, inputs: Path) -> Path:
    """A store that watches queries and has erased a row."""
    texts = sentences(20)
    write_parquet(inputs / "a.parquet", texts, id=[f"a{n}" for n in range(20)], lang=["en"] * 20)
    embed(inputs / "*.parquet", "--id-column", "id", "--keep-columns", "lang").ok()
    queries = write_lines(inputs.parent / "queries.txt", sentences(6, 3))
    run("forget", "--store", store, "--id", "a7").ok()
    run("watch", "--store", store, "--queries", queries, "-k", "3").ok()
    return store


def test_a_change_of_pooler(run: Run, old: Path, inputs: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    like = ("--like", old, "--pooler", "max")
    planned = run("plan", *like).ok().out
    assert "different: --pooler max (there auto)" in planned
    assert "20 to embed" in planned
    said = run("embed", *like, "--store", new).ok().out
    assert f"like        {old}; taken: --input, --id-column, --keep-columns" in said
    assert "1 of the rejected rows were erased" in said
    assert open_store(new).dataset().to_table(columns=["id", "lang"]).to_pylist() == (
        open_store(old).dataset().to_table(columns=["id", "lang"]).to_pylist()
    )
    assert run("verify", "--store", new, "--forgotten").ok()
    write_parquet(inputs / "b.parquet", ["a new row"], id=["b0"], lang=["de"])
    night = run("embed", "--store", old).ok().out
    assert f"input       {inputs}/*.parquet, as in the last run" in night
    assert "1 row added" in night
    later = json.loads(run("embed", "--like", old, "--store", new, "--json").ok().out)
    assert later["like"]["different"] == {}
    assert later["ledger"]["written"] == 20
    run("embed", "--store", old, *like).failed(2, "was not made like it")


def test_a_kept_column_has_the_type_that_the_other_store_has(
    run: Run, embed: Run, store: Path, inputs: Path, tmp_path: Path
) -> None:
    """Whose input had types when that store began."""
    table = write_parquet(inputs / "a.parquet", sentences(2), price=pa.array([1, 2], pa.int32()))
    embed(inputs / "*", "--keep-columns", "price").ok()
    table.unlink()
    write_lines(inputs / "a.csv", ["text,price", "a dog,3", "a cat,none"])
    new = tmp_path / "new"
    run("embed", "--like", store, "--store", new, "--max-rejects", "1").ok()
    prices = open_store(new).dataset().to_table(columns=["price"])["price"]
    assert (prices.type, prices.to_pylist()) == (pa.int32(), [3])
    assert open_store(new).manifest.options == open_store(store).manifest.options


def test_the_answers_of_both(run: Run, old: Path, inputs: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    run("embed", "--like", old, "--pooler", "max", "--store", new).ok()
    before = manifest_of(new)
    page = tmp_path / "answers.html"
    asked = ("watch", "--store", new, "--like", old)
    said = run(*asked, "--report", page).ok().out
    assert f"watch       6 queries of {old}" in said
    values = json.loads(run(*asked, "--json").ok().out)
    assert (values["queries"], values["k"], values["answers"]) == (6, 3, 18)
    lost = [row for query in values["differing"] for row in query["only_there"]]
    assert len(lost) == values["causes"]["ranked_lower"] > 0
    assert values["change"] == pytest.approx(len(lost) / 18)
    assert all(row["id"] in said for row in lost)
    assert values["differing"][0]["query"] in page.read_text()
    assert manifest_of(new) == before
    run("watch", "--store", old, "--like", new).failed(2, "it watches no queries")
    run(*asked, "-k", "3").failed(2, "-k")
    run(*asked, "--remove").failed(2, "--like", "--remove")


def test_answers_of_files_that_wait_for_their_budget(
    run: Run, old: Path, inputs: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    texts = sentences(4, 3)
    write_parquet(inputs / "b.parquet", texts, id=[f"b{n}" for n in range(4)], lang=["en"] * 4)
    run("embed", "--store", old).ok()
    run("embed", "--like", old, "--pooler", "max", "--store", new, "--budget", "1").ok()
    asked = ("watch", "--store", new, "--like", old, "--json")
    values = json.loads(run(*asked).ok().out)
    lost = [row for query in values["differing"] for row in query["only_there"]]
    pending = [row for row in lost if row["id"].startswith("b")]
    assert values["causes"]["pending"] == len(pending) > 0
    assert all(row["cause"] == "pending" for row in pending)
    run("embed", "--store", new).ok()
    assert "pending" not in json.loads(run(*asked).ok().out)["causes"]


def test_python_takes_the_last_input_too(old: Path, inputs: Path, tmp_path: Path) -> None:
    assert sb.embed(store=old).manifest.data["work"]["carried"] == 19
    new = sb.embed(store=tmp_path / "new", like=old, text_column="lang")
    assert len(new) == 19
    assert new.manifest.options.text_column == "lang"
    rows = sb.embed(
        {"id": ["x"], "text": ["a man"], "lang": ["en"]}, store=tmp_path / "rows", like=old
    )
    assert rows.manifest.options.id_column == "id"
    with pytest.raises(sb.OptionError, match="cannot be read again"):
        sb.embed(store=tmp_path / "rows")


def test_the_line_about_a_store_that_another_one_is_like() -> None:
    begun = Likeness("/old", True, ("--input",), {"--pooler": ("max", "auto")})
    assert describe_likeness(begun) == "/old; taken: --input; different: --pooler max (there auto)"
    plain = Likeness("/old", True)
    assert describe_likeness(plain) == "/old; taken: defaults alone; different: nothing"
    assert describe_likeness(Likeness("/old", False)) == "/old; different there since: nothing"
    values = {"--keep-columns": (["a", "b:int"], []), "--keep-text": (False, True)}
    values |= {"--dim": (None, 8), "--prompt": ("", "x" * 99)}
    assert describe_likeness(Likeness("/old", False, (), values)) == (
        "/old; different there since: --keep-columns a,b:int (then none), --keep-text no (then"
        f" yes), --dim none (then 8), --prompt '' (then {'x' * 60}...); this store stays as it is"
    )
    assert "holds no store any more" in describe_likeness(Likeness("/old", False, exists=False))
