"""The figures of docs/cost.md: each is counted here, and the page has the table that these
make.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import registry
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.gcs import Gcs
from helpers.nights import space_of
from helpers.snapshots import units_of
from helpers.units import make_unit

from benchmarks import cost
from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.buckets import find_buckets
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.changed_rows import SnapshotShard, by_bucket, read_block
from sentence_beam.transforms.store.shards.id_hashes import pack_hashes, read_id_hashes
from sentence_beam.transforms.store.shards.shard_bytes import add_text
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


PAGE = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
DEFAULTS: argparse.Namespace = cost.parser().parse_args([])
UNITS = 20
Shard = Callable[..., UnitRecord]


def test_the_page_has_the_table() -> None:
    plain = [[cell.strip() for cell in line.split("|")] for line in PAGE.splitlines()]
    for line in cost.quantities(DEFAULTS).splitlines():
        if "---" not in line:
            assert [cell.strip() for cell in line.split("|")] in plain


def test_prices_are_not_made_up() -> None:
    assert all(value is None for name, value in vars(DEFAULTS).items() if name.startswith("price"))
    args = cost.parser().parse_args(["--price-hour", "2", "--rate", "1000"])
    first = cost.money(args).splitlines()[2].split("|")[2]
    assert float(first.replace(",", "")) == pytest.approx(
        10_000_000 * 14.7 / 1000 / 3600 * 2, rel=0.01
    )


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """Write a unit of sentences of a page in English; its record."""

    def written(
        rows: int, dim: int, keep_text: bool = False, precision: str = "float32"
    ) -> UnitRecord:
        space = replace(space_of(dim), precision=precision)
        dice, ones = np.random.default_rng(0), np.ones(rows, np.int32)
        unit = make_unit(space, english(rows))
        unit = replace(unit, rows=add_text(unit.rows)) if keep_text else unit
        vectors = Vectors(dice.standard_normal((rows, dim)).astype(np.float32), dice.random(rows).astype(np.float32),
                          dice.integers(3, 40, rows).astype(np.int32), ones < 0, ones * 0)  # fmt: skip
        return UnitStore(str(tmp_path / str(keep_text)), space).write(
            unit, vectors, [], UnitCounts(rows, 0, 0)
        )

    return written


def english(rows: int) -> list[str]:
    """Pieces of ten words of the documentation, each once."""
    pages = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    words = [word for page in pages for word in page.read_text().split()]
    return list(dict.fromkeys(" ".join(words[n : n + 10]) for n in range(0, len(words), 10)))[:rows]


def test_bytes_of_a_row(shard: Shard) -> None:
    rows, dim = 4_000, 384
    plain = shard(rows, dim).bytes
    assert plain / rows == pytest.approx(4 * dim + cost.ROW_BYTES, rel=0.1, abs=8)
    text = sum(len(text.encode()) for text in english(rows))
    assert 50 < text / rows < 70
    assert (shard(rows, dim, keep_text=True).bytes - plain) / text == pytest.approx(
        cost.TEXT_KEPT, abs=0.1
    )


def test_codes_beside_the_floats(shard: Shard) -> None:
    plain, coded = (
        shard(2_000, 384, precision=precision).bytes for precision in ("float32", "float16")
    )
    assert (coded - plain) / 2_000 == pytest.approx(2 * 384, rel=0.05)


def test_by_content_an_edit_writes_two_units_again() -> None:
    """The text's bucket and that of the text that it was."""
    rows, bits, edited = 20_000, 9, 0.005
    before, dice = [f"row {n}" for n in range(rows)], random.Random(0)
    after = [f"{text}, edited" if dice.random() < edited else text for text in before]
    old, new = (
        np.frombuffer(b"".join(row_hashes(texts)), np.uint8).reshape(-1, 16)
        for texts in (before, after)
    )
    moved = (old != new).any(axis=1)
    written = {*find_buckets(old[moved], bits).tolist(), *find_buckets(new[moved], bits).tolist()}
    assert len(written) / (1 << bits) == pytest.approx(
        cost.rewritten(edited, 2 * rows / (1 << bits)), rel=0.15
    )


def test_what_a_row_shuffles_for_ids_and_changes(shard: Shard, tmp_path: Path) -> None:
    rows, root = 4_000, str(tmp_path / "False")
    path = shard(rows, 4).path or ""
    ids = [data for _, data in pack_hashes(read_id_hashes(root, path), 3)]
    assert sum(map(len, ids)) == cost.ID_BYTES * rows
    assert (
        sum(file.stat().st_size for file in (tmp_path / "False" / "ids").iterdir())
        == cost.ID_BYTES * rows + 16
    )
    block = read_block(root, [SnapshotShard(path, 1 << 20, True)], ())
    packed = sum(len(data) for _, data in by_bucket(block, 3))
    assert packed / rows == pytest.approx(cost.CHANGED_BYTES, rel=0.1)


def test_what_a_unit_shuffles() -> None:
    file = InputFile("gs://a-bucket/reviews/date=2026-11-23/part-00042-of-10000.parquet", "date=2026-11-23/p", "parquet",
                     "", 300_000_000, "c" * 64, "1732320000000000")  # fmt: skip
    span = Span(file, 12, 1_000_000, 1_017_000, (12, 13), 17_000, 262_000)
    coder = registry.get_coder(object)
    # 250 are the record's, and what a runner adds
    assert len(coder.encode([span])) <= cost.SHUFFLED - 400


@pytest.fixture
def night(run: Run, model: Path, inputs: Path, gs: str) -> Run:
    """A night over a file of units of ten rows on gs://, some of whose texts are edited; with
    options more.
    """

    def made(edited: Iterable[int], *options: object) -> object:
        texts = sentences(10 * UNITS)
        for row in edited:
            texts[row] = f"edited, row {row}"
        ids = pa.array([f"r{n}" for n in range(10 * UNITS)])
        write_parquet(inputs / "a.parquet", texts, row_group_size=10, id=ids)
        storage.overwrite(f"{gs}/in/a.parquet", (inputs / "a.parquet").read_bytes())
        there = ("--input", f"{gs}/in/*.parquet", "--store", f"{gs}/store", "--model", model)
        return run("embed", *there, "--unit-tokens", 200, *options).ok()

    return made


@pytest.mark.slow
@pytest.mark.parametrize("column", ["", "id"], ids=["ids of files", "own ids"])
def test_requests_and_bytes_of_nights(night: Run, run: Run, gs: str, gcs: Gcs, column: str) -> None:
    def counted(*edited: int) -> tuple[int, int]:
        with gcs.counted() as requests:
            night(edited, "--id-column", column)
        writes = sum(not one.startswith("GET") or "/o?" in one for one in requests)
        return writes, len(requests) - writes

    first_writes, first_reads = counted()
    first = units_of(f"{gs}/store")
    assert len(first) == UNITS
    of_run = counted()
    assert sum(of_run) <= cost.RUN_REQUESTS
    writes, reads = first_writes - of_run[0], first_reads - of_run[1]
    more = cost.ID_REQUESTS if column else 0
    slack = 10  # what a run with changes asks for beside its units
    assert writes <= (cost.UNIT_WRITES + bool(column)) * UNITS + slack
    assert writes + reads <= (cost.UNIT_WRITES + cost.UNIT_READS + more) * UNITS + slack
    edited = random.Random(3).sample(range(10 * UNITS), 12)
    later_writes, later_reads = counted(*edited)
    second = units_of(f"{gs}/store")
    new = {unit["path"] for unit in second} - {unit["path"] for unit in first}
    assert len(new) == len({row // 10 for row in edited}), (
        "a unit is written again where a row of it was edited"
    )
    assert later_writes - of_run[0] <= (cost.UNIT_WRITES + bool(column)) * len(new) + slack
    assert later_reads - of_run[1] <= (cost.UNIT_READS + more) * UNITS + slack
    listed = storage.storage_of(gs).below(f"{gs}/store/embeddings")
    size = {entry.path.rpartition("/")[2]: entry.size for entry in listed}
    one = sum(unit["bytes"] for unit in second)
    assert sum(size.values()) == pytest.approx(one * (1 + len(new) / UNITS), rel=0.1)
    record = json.dumps({k: v for k, v in second[0].items() if v is not None}, indent=1)
    sidecars = storage.storage_of(gs).below(f"{gs}/store/sidecars")
    assert len(record) + max(entry.size for entry in sidecars) <= cost.UNIT_BYTES + 200
    run("vacuum", "--store", f"{gs}/store", "--keep", 1).ok()
    left = storage.storage_of(gs).below(f"{gs}/store/embeddings")
    assert sum(entry.size for entry in left) == one
