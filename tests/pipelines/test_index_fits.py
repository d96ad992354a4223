"""An index that the rows are too few for: refused where it is asked for, `auto` where the store
remembers it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    sentences,
    write_lines,
    write_parquet,
)

from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.row_counting import count_up_to

pytest.importorskip("faiss")


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be embedded."""
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
        lambda job: pytest.fail("the model was loaded"),
    )


def write_small(folder: Path) -> None:
    """Seventeen files of two rows, which share units."""
    for number in range(17):
        write_lines(folder / f"{number:02d}.txt", sentences(2, 2 * number))


KINDS: dict[str, tuple[Callable[[Path], object], int]] = {
    "counted": (lambda folder: write_parquet(folder / "a.parquet", sentences(50)), 50),
    "without a footer": (lambda folder: write_lines(folder / "a.txt.gz", sentences(50)), 50),
    "content": (lambda folder: write_lines(folder / "a.txt", sentences(50)), 50),
    "group": (write_small, 34),
}


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_asked_for_that_has_too_few_rows_is_refused_before_anything_is_embedded(
    embed: Run, plan: Run, inputs: Path, store: Path, kind: str
) -> None:
    write, rows = KINDS[kind]
    write(inputs)
    flags = ("--partition", "content") if kind == "content" else ()
    few = (2, "--index IVF64,Flat", "64 rows", f"there are {rows}", "auto")
    embed(inputs / "*", "--index", "IVF64,Flat", *flags).failed(*few)
    if kind in ("counted", "without a footer"):
        plan(inputs / "*", "--index", "IVF64,Flat").failed(*few)
        for options, names in {
            ("IVF4,PQ4",): ("256 rows", "there are 50"),
            ("IVF30,Flat", "--limit", 20): ("30 rows", "there are 20"),
            ("IVF4,PQ7x4",): ("7 equal parts",),
        }.items():
            embed(inputs / "*", "--index", *options).failed(2, f"--index {options[0]}", *names)
    assert manifest_of(store) is None
    assert files_in(store, "embeddings") == {}


def test_an_index_with_rows_enough_counts_no_further(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def count(span: Span, most: int) -> int:
        counted.append(count_up_to(span, most))
        return counted[-1]

    monkeypatch.setattr("sentence_beam.transforms.steps.plan.row_checks.count_up_to", count)
    for name, start, rows in (("a", 0, 40), ("b", 40, 40)):
        write_lines(inputs / f"{name}.txt", sentences(rows, start))
    embed(inputs / "*", "--index", "IVF32,Flat").ok()
    assert manifest_of(store)["index"]["factory"] == "IVF32,Flat"
    write_lines(inputs / "c.txt", sentences(5, 80))
    embed(inputs / "*", "--index", "IVF32,Flat").ok()  # 80 rows are carried
    assert counted == [32]


def test_a_remembered_index_becomes_what_auto_gives_and_the_run_says_so(
    embed: Run, plan: Run, run: Run, inputs: Path, store: Path
) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(64))  # as many rows as lists
    embed(inputs / "*", "--index", "IVF64,Flat").ok()
    assert manifest_of(store)["index"]["factory"] == "IVF64,Flat"
    write_parquet(path, sentences(55))
    assert "auto: IVF64,Flat" in plan(inputs / "*").ok().out
    out = embed(inputs / "*").ok().out
    line = next(line for line in out.splitlines() if line.startswith("trained"))
    assert "IVF64,Flat has to be trained on 64 rows or more, and there are 55" in line
    index = check_ledger(store, 55)["index"]
    assert (index["factory"], index["request"]["index"], index["rows"]) == ("Flat", "auto", 55)
    run("verify", "--store", store).ok()
    assert "trained" not in embed(inputs / "*").ok().out
    assert manifest_of(store)["index"] == index
    write_parquet(path, sentences(40))
    embed(inputs / "*", "--index", "IVF64,Flat").failed(2, "--index IVF64,Flat", "there are 40")


def test_budgets_choose_a_kind_that_the_summary_plan_and_manifest_tell(
    embed: Run, plan: Run, run: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", sentences(100))
    embed(inputs / "*").ok()
    asked, before = ("index", "--store", store, "--max-bytes-per-row"), manifest_of(store)
    run(*asked, 5).failed(2, "--max-bytes-per-row 5: the smallest index")
    run(*asked, 40, "--target-recall", 1.5).failed(2, "1.5 is not a number from 0 to 1")
    run(*asked, 40, "--max-latency-ms", 0).failed(2, "0 is not a number of milliseconds above")
    assert manifest_of(store) == before
    out = run(*asked, 40, "--target-recall", 0.5).ok().out
    assert "chosen      " in out
    assert "trained" not in out  # for the first time
    index = check_ledger(store, 100, carried=100)["index"]
    assert index["choice"]["row_bytes"] <= 40
    assert index["request"]["max_bytes_per_row"] == 40
    out = plan(inputs / "*").ok().out
    assert "at most about" in out
    assert "of memory to serve" in out
    assert "chosen" not in embed(inputs / "*").ok().out
    assert check_ledger(store, 100, carried=100)["index"] == index
    out = run(*asked, 40, "--target-recall", 0.6).ok().out
    assert "trained     again: another index was asked for" in out
