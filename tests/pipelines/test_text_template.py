"""Text made of several columns, by a template."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, rows_of

from sentence_beam.transforms.space import row_hash


def hashes(store: Path) -> list[bytes]:
    """The rows' hashes, sorted."""
    return sorted(row["row_hash"] for row in rows_of(store))


@pytest.mark.parametrize("partition", ["file", "content"])
def test_the_store_remembers_it_until_a_column_is_named(
    embed: Run, inputs: Path, store: Path
) -> None:
    rows = [
        {"title": "One", "year": 1999},
        {"title": None, "year": 7},
        {"title": " ", "year": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), inputs / "a.parquet")
    embed(inputs / "*", "--text-template", "{title}\\n({year})", "--max-rejects", 1).ok()
    assert hashes(store) == sorted(map(row_hash, ["One\n(1999)", "\n(7)"]))
    manifest = manifest_of(store)
    assert manifest["rows"] == {"read": 3, "written": 2, "rejected": 1}
    assert manifest["options"]["text_template"] == "{title}\\n({year})"
    embed(inputs / "*").ok()
    assert manifest_of(store)["work"]["carried"] == 2
    embed(inputs / "*", "--text-column", "title", "--max-rejects", 1).ok()
    assert hashes(store) == [row_hash("One")]
    assert manifest_of(store)["options"]["text_template"] is None
    embed(inputs / "*", "--text-template", "{title}", "--max-rejects", 1).ok()
    assert manifest_of(store)["work"]["reused"] == 1


def test_a_file_may_lack_a_column_and_one_that_none_has_ends_the_run(
    embed: Run, inputs: Path, store: Path
) -> None:
    pq.write_table(pa.table({"title": ["One"], "body": ["cat"]}), inputs / "a.parquet")
    pq.write_table(pa.table({"title": ["Two"]}), inputs / "b.parquet")
    pq.write_table(pa.table({"other": ["Three"]}), inputs / "c.parquet")
    embed(inputs / "*", "--text-template", "{title} {body}", "--max-rejects", 1).ok()
    assert hashes(store) == sorted(map(row_hash, ["One cat", "Two "]))
    assert manifest_of(store)["rows"]["rejected"] == 1
    for given, *said in (
        (["{title} {bodi}"], "no column bodi"),
        (["{title"], "brace"),
        (["{a}", "--text-column", "b"], "--text-column"),
    ):
        embed(inputs / "*", "--text-template", *given).failed(2, "--text-template", *said)
