"""The figures of docs/cost.md: each is counted here, and the page has the tables that these make."""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import registry
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.gcs import Gcs
from helpers.nights import space_of
from helpers.units import make_unit

from benchmarks import cost
from transforms import storage
from transforms.corpus import InputFile, Span
from transforms.store import open_store
from transforms.store.shards import Vectors
from transforms.store.units import UnitCounts, UnitStore

PAGE = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
DEFAULTS: argparse.Namespace = cost.parser().parse_args([])
UNITS = 20


@pytest.mark.parametrize("table", [cost.quantities(DEFAULTS), cost.shares(), cost.kept(DEFAULTS)])
def test_the_page_has_the_tables(table: str) -> None:
    plain = [[cell.strip() for cell in line.split("|")] for line in PAGE.splitlines()]
    for line in table.splitlines():
        if "---" not in line:
            assert [cell.strip() for cell in line.split("|")] in plain


def test_prices_are_not_made_up() -> None:
    assert all(value is None for name, value in vars(DEFAULTS).items() if name.startswith("price"))
    args = cost.parser().parse_args(["--price-hour", "2", "--rate", "1000"])
    first = cost.money(args).splitlines()[2].split("|")[2]
    assert float(first.replace(",", "")) == pytest.approx(10_000_000 * 14.7 / 1000 / 3600 * 2, rel=0.01)


def test_bytes_of_a_row(tmp_path: Path) -> None:
    rows, dim, space = 4_000, 384, space_of(384)
    texts = [f"{text} {n}" for n, text in enumerate(sentences(rows))]
    dice, ones = np.random.default_rng(0), np.ones(rows, np.int32)
    vectors = Vectors(dice.standard_normal((rows, dim)).astype(np.float32), dice.random(rows).astype(np.float32),
                      dice.integers(3, 40, rows).astype(np.int32), ones < 0, ones * 0)  # fmt: skip
    record = UnitStore(str(tmp_path), space).write(make_unit(space, texts), vectors, [], UnitCounts(rows, 0, 0))
    assert record.bytes / rows == pytest.approx(4 * dim + cost.ROW_BYTES, rel=0.1, abs=8)


def test_what_a_unit_shuffles() -> None:
    file = InputFile("gs://a-bucket/reviews/date=2026-11-23/part-00042-of-10000.parquet", "date=2026-11-23/p", "parquet",
                     "", 300_000_000, "c" * 64, "1732320000000000")  # fmt: skip
    span = Span(file, 12, 1_000_000, 1_017_000, (12, 13), 17_000, 262_000)
    coder = registry.get_coder(object)
    assert len(coder.encode([span])) <= cost.SHUFFLED - 400  # 250 are the record's, and what a runner adds


@pytest.fixture
def night(run: Run, model: Path, inputs: Path, gs: str) -> Run:
    """A night over a file of units of ten rows on gs://, some of whose texts are edited."""

    def made(*edited: int) -> object:
        texts = sentences(10 * UNITS)
        for row in edited:
            texts[row] = f"edited, row {row}"
        ids = pa.array([f"r{n}" for n in range(10 * UNITS)])
        write_parquet(inputs / "a.parquet", texts, row_group_size=10, id=ids)
        storage.overwrite(f"{gs}/in/a.parquet", (inputs / "a.parquet").read_bytes())
        there = ("--input", f"{gs}/in/*.parquet", "--store", f"{gs}/store", "--model", model)
        return run("embed", *there, "--unit-tokens", 200).ok()

    return made


@pytest.mark.slow
def test_requests_and_bytes_of_nights(night: Run, run: Run, gs: str, gcs: Gcs) -> None:
    def counted(*edited: int) -> tuple[int, int]:
        with gcs.counted() as requests:
            night(*edited)
        writes = sum(not one.startswith("GET") or "/o?" in one for one in requests)
        return writes, len(requests) - writes

    writes, reads = counted()
    first = open_store(f"{gs}/store").manifest
    units = len(first.units)
    assert units == UNITS
    assert within(writes, reads, units)
    writes, reads = counted()
    assert writes + reads <= 2 * cost.RUN_REQUESTS
    edited = random.Random(3).sample(range(10 * UNITS), 12)
    writes, reads = counted(*edited)
    second = open_store(f"{gs}/store").manifest
    new = {unit.path for unit in second.units} - {unit.path for unit in first.units}
    assert len(new) == len({row // 10 for row in edited}), "a unit is written again where a row of it was edited"
    assert within(writes, reads, units)
    listed = storage.storage_of(gs).below(f"{gs}/store/embeddings")
    size = {entry.path.rpartition("/")[2]: entry.size for entry in listed}
    one = sum(unit.bytes for unit in second.units)
    assert sum(size.values()) == pytest.approx(one * (1 + len(new) / units), rel=0.1)
    record = json.dumps(second.data["shards"][0], indent=1)
    sidecars = storage.storage_of(gs).below(f"{gs}/store/sidecars")
    assert len(record) + max(entry.size for entry in sidecars) <= cost.UNIT_BYTES + 200
    run("vacuum", "--store", f"{gs}/store", "--keep", 1).ok()
    left = storage.storage_of(gs).below(f"{gs}/store/embeddings")
    assert sum(entry.size for entry in left) == one


def within(writes: int, reads: int, units: int) -> bool:
    """Whether requests are within what the page says of so many units that are embedded."""
    return (
        writes <= cost.UNIT_WRITES * units + cost.RUN_REQUESTS and reads <= cost.UNIT_READS * units + cost.RUN_REQUESTS
    )
