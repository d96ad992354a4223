"""Files that are cut between their blocks, in runs that append, leave out bad files, cut documents,
group small files or partition by content.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.block_files import WRITERS, as_arrow, damage_middle, write_blocks
from helpers.corpora import sentences, write_bytes
from helpers.jobs import embed_job
from helpers.plans import UNIT_TOKENS, handed_out, ids_in, job_of, night
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.blocks import unpack
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.groups import list_spans
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.embed.cutting import read_units
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.content_plan import ToRead, read_rows
from sentence_beam.transforms.steps.plan.look import look
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs.run_result import Result

ROWS = 900
TEXTS = sentences(ROWS)
FORMATS = pytest.mark.parametrize("kind", WRITERS)
CUT = [kind for kind in WRITERS if kind != "json"]
CUT_FORMATS = pytest.mark.parametrize("kind", CUT)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "in"


def run(store: Path, glob: Path, number: int = 0, **values: Any) -> Result:
    """A night over files whose ids are made."""
    return night(store, glob, number=number, id_column=None, **values)


def made_ids(name: str, rows: int) -> list[str]:
    return [f"{name}#{row}" for row in range(rows)]


def texts_in(store: Path) -> dict[str, str]:
    """The texts of all rows of the store by id."""
    table = open_store(str(store)).dataset().to_table(columns=["id", "text"])
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


def shards_of(store: Path, file: str) -> list[str | None]:
    return [unit["path"] for unit in units_of(store) if unit["file"] == file]


def spans_in(job: EmbedJob) -> list[Span]:
    """The spans that the plan of a run hands out."""
    spans = [span for item in handed_out(job) if isinstance(item, list) for span in item]
    return [one for span in spans for one in list_spans(span)]


@FORMATS
def test_a_run_that_appends_leaves_the_parts_of_other_files(
    folder: Path, store: Path, kind: str
) -> None:
    write_blocks(folder / f"a.{kind}", TEXTS)
    run(store, folder / f"a.{kind}", keep_text=True)
    before = shards_of(store, f"a.{kind}")
    assert len(before) > 3
    write_blocks(folder / f"b.{kind}", TEXTS[:200])
    assert run(store, folder / f"b.{kind}", 1, append=True, keep_text=True).message == "committed"
    assert shards_of(store, f"a.{kind}") == before
    write_blocks(folder / f"a.{kind}", [*TEXTS[:-1], "another text"])
    assert run(store, folder / f"a.{kind}", 2, append=True, keep_text=True).message == "committed"
    after = shards_of(store, f"a.{kind}")
    assert len(after) == len(before)
    assert len(set(after) & set(before)) >= len(before) - 2
    found = texts_in(store)
    assert sorted(found) == sorted(made_ids(f"a.{kind}", ROWS) + made_ids(f"b.{kind}", 200))
    assert found[f"a.{kind}#{ROWS - 1}"] == "another text"


@FORMATS
def test_a_file_with_a_damaged_block_is_left_out_as_a_whole(
    folder: Path, store: Path, kind: str
) -> None:
    glob = folder / f"*.{kind}"
    for name in "ab":
        write_blocks(folder / f"{name}.{kind}", TEXTS)
    run(store, glob)
    before = shards_of(store, f"b.{kind}")
    write_blocks(folder / f"a.{kind}", TEXTS[:100])
    for name in "bc":
        write_blocks(folder / f"{name}.{kind}", [*TEXTS, "a new text"])
        damage_middle(folder / f"{name}.{kind}")
    result = run(store, glob, 1, max_bad_files=1)
    assert result.status == "failed"
    assert "2 of 3 files cannot be read" in result.message
    assert str(folder / f"b.{kind}") in result.message
    assert "\n" not in result.message
    assert run(store, glob, 2, max_bad_files=2).message == "committed"
    assert shards_of(store, f"b.{kind}") == before
    assert ids_in(store) == sorted(made_ids(f"a.{kind}", 100) + made_ids(f"b.{kind}", ROWS))


@pytest.mark.parametrize("kind", [*CUT, "parquet"])
def test_a_file_that_gets_its_rows_later_is_cut(folder: Path, store: Path, kind: str) -> None:
    path = write_blocks(folder / f"a.{kind}", [])
    write_blocks(folder / f"other.{kind}", TEXTS[:3])
    run(store, folder / f"*.{kind}", unit_tokens=20)
    write_blocks(path, TEXTS[:120])
    spans = spans_in(job_of(store, path, number=1, id_column=None, unit_tokens=20))
    assert len(spans) > 1
    assert run(store, folder / f"*.{kind}", 2, unit_tokens=20).message == "committed"
    assert len(ids_in(store)) == 120 + 3


@CUT_FORMATS
@pytest.mark.parametrize("chunks", ["budget:tokens=4", "budget:tokens=4,combine=mean"])
def test_pieces_do_not_depend_on_cuts(
    folder: Path, store: Path, model: Path, kind: str, chunks: str
) -> None:
    path = write_blocks(folder / f"a.{kind}", TEXTS[:150])
    job = embed_job(store, model, path, unit_tokens=500)
    columns = replace(job.columns, id=None, keep=())
    recipe = replace(job.recipe, chunks=ChunksSpec.parse(chunks))
    space = recipe.space(recipe.files())
    options = replace(job.run.options, id_column=None)
    job = replace(job, columns=columns, recipe=recipe)
    job = replace(job, run=replace(job.run, space=space, options=options))
    spans = spans_in(job)
    assert len(spans) > 1
    whole = replace(spans[0], number=0, stop=ROWS, rows=ROWS)
    assert pieces_in(spans, job) == pieces_in([whole], job)


def pieces_in(spans: list[Span], job: EmbedJob) -> list[tuple]:
    """The pieces of spans: ids, places in documents, and what the model reads."""
    found: list[tuple] = []
    for unit in read_units([*spans], job):
        pieces = [None] * len(unit.ids)
        if unit.pieces is not None:
            pieces = unit.pieces.select(["piece", "start", "end"]).to_pylist()
        texts: list[Any] = unit.parts.texts if unit.parts is not None else unit.texts
        found += zip(unit.ids, unit.positions, pieces, texts, strict=True)
    return found


@FORMATS
def test_a_limit_takes_the_first_rows(folder: Path, store: Path, kind: str) -> None:
    path = write_blocks(folder / f"a.{kind}", TEXTS)
    assert run(store, path, limit=405).message == "committed"
    assert ids_in(store) == sorted(made_ids(f"a.{kind}", 405))


@FORMATS
def test_small_files_share_units(folder: Path, store: Path, kind: str) -> None:
    glob = folder / f"*.{kind}"
    names = [f"{number:02d}.{kind}" for number in range(20)]
    for place, name in enumerate(names):
        write_blocks(folder / name, TEXTS[3 * place : 3 * place + 3])
    write_blocks(folder / f"large.{kind}", 20 * TEXTS)
    run(store, glob, unit_tokens=40_000, keep_text=True)
    assert "f0-0" in {file["group"] for file in files_of(store)}
    assert len(shards_of(store, f"large.{kind}")) > 1
    write_blocks(folder / names[7], ["changed", *TEXTS[:5]])
    assert run(store, glob, 1, unit_tokens=40_000, keep_text=True).message == "committed"
    found = texts_in(store)
    rows = Counter({name: 3 for name in names} | {names[7]: 6, f"large.{kind}": 20 * ROWS})
    assert Counter(row_id.partition("#")[0] for row_id in found) == rows
    assert found[f"{names[7]}#0"] == "changed"
    assert found[f"{names[8]}#2"] == TEXTS[26]


def test_a_small_file_of_many_rows_is_read_in_parts_into_its_group(
    folder: Path, store: Path
) -> None:
    """Its text is packed well, so that its size says little."""
    texts = [f"{row} " + "many words " * 100 for row in range(700)]
    data = as_arrow(texts, 100, compression="zstd")
    for number in range(20):
        write_bytes(folder / f"{number:02d}.arrow", data)
    options: dict[str, Any] = {"unit_tokens": 100_000, "id_column": None}
    job = job_of(store, folder / "*.arrow", **options)
    parts = Counter(span.file.relative for span in spans_in(job))
    assert len(parts) == 20
    assert set(parts.values()) == {2}
    assert night(store, folder / "*.arrow", number=1, **options).message == "committed"
    assert len(ids_in(store)) == 20 * 700
    write_bytes(folder / "05.arrow", as_arrow(texts[:699], 100, compression="zstd"))
    assert night(store, folder / "*.arrow", number=2, **options).message == "committed"
    assert len(ids_in(store)) == 20 * 700 - 1
    assert any(file["group"] for file in files_of(store))


@CUT_FORMATS
def test_buckets_by_content_do_not_depend_on_cuts(folder: Path, store: Path, kind: str) -> None:
    glob = write_blocks(folder / f"a.{kind}", TEXTS)
    job = job_of(store, glob, id_column=None, partition="content")
    spans = planned_spans(job)
    assert len(spans) > 3
    buckets = Buckets(2, ROWS, ROWS, UNIT_TOKENS)
    whole = replace(spans[0], number=0, stop=ROWS, rows=ROWS)
    found, expected = (packed_rows(some, buckets, job) for some in (spans, [whole]))
    assert found.equals(expected)
    assert sorted(found.column("id").to_pylist()) == sorted(made_ids(f"a.{kind}", ROWS))


def planned_spans(job: EmbedJob) -> list[Span]:
    """The spans of a run's files."""
    return list(look(job).spans)


def packed_rows(spans: list[Span], buckets: Buckets, job: EmbedJob) -> pa.Table:
    """The rows of spans as they travel to the workers that embed them, sorted."""
    work = ToRead(tuple(spans), buckets, first=False)
    table = unpack([block.data for _, block in read_rows(work, job, lambda: None)])
    assert table is not None
    return table
