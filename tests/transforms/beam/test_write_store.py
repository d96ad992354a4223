"""WriteStore: rows of a pipeline become the same store that `embed --partition content` makes of
files with them.

Covers transforms/steps/plan/collection.py.
Covers transforms/steps/plan/row_batches.py.
Covers transforms/steps/plan/row_summary.py.
"""

import datetime
import random
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import Timestamp
from helpers import eager
from helpers.corpora import ids_of, manifest_of, rejects_of, rows_of, sentences, write_parquet
from helpers.jobs import embed_job
from helpers.snapshots import units_of

import sentence_beam as sb
from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.beam.write_store import PackRowsFn
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import row_batches
from sentence_beam.transforms.steps.plan.collection import Engine, ToPack, begin_collection
from sentence_beam.transforms.steps.plan.row_summary import RowsSummary
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.run_result import Result

pytestmark = pytest.mark.usefixtures("plain_beam")

Row = dict[str, Any]
RECIPES = Path(__file__).resolve().parents[3] / "docs" / "recipes"


class Doc(NamedTuple):
    """A row with a schema, as JDBC gives it."""

    id: int
    text: str


def collection(n: int, start: int = 0) -> list[Row]:
    """Rows with kept values; every fifth text occurs twice, every tenth row is without text, one id
    is double.
    """
    texts = sentences(n, start)
    rows = []
    for k in range(n):
        text: str | None = texts[k - 1] if k % 5 == 1 else texts[k]
        if k % 10 == 9:
            text = None
        rows.append({"id": f"i{start + k}", "text": text, "lang": "de" if k % 3 else "en", "n": k})
    return [*rows, {**rows[0]}]


class Writing:
    """Pipelines into one store, with a tiny model."""

    def __init__(self, store: Path, model: Path):
        self.store = store
        self.options: dict[str, Any] = {
            "model": str(model), "dtype": "float32", "unit_tokens": 200, "max_rejects": 1,
            "keep_columns": "lang,n",
        }  # fmt: skip

    def transform(self, **said: Any) -> sb.WriteStore:
        """The PTransform, with some other options."""
        return sb.WriteStore(self.store, **{**self.options, **said})

    def built(self, rows: list[Any], flags: Sequence[str] = (), **said: Any) -> beam.Pipeline:
        """A pipeline that writes the rows, not executed yet."""
        pipeline = beam.Pipeline("FnApiRunner", options=PipelineOptions(list(flags)))
        _ = pipeline | beam.Create(rows, reshuffle=False) | self.transform(**said)
        return pipeline

    def write(self, rows: list[Any], **said: Any) -> Result:
        """Execute a pipeline that writes the rows; return its Result, the one element."""
        (result,) = eager.run(self.transform(**said), rows)
        assert isinstance(result, Result)
        return result

    def fails(self, rows: list[Any], error: type[Exception], match: str, **said: Any) -> None:
        """Check that such a pipeline fails with an error and leaves the snapshot alone."""
        before = manifest_of(self.store)
        with pytest.raises(error, match=match):
            self.write(rows, **said)
        assert manifest_of(self.store) == before


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of the store."""
    return tmp_path / "store"


@pytest.fixture
def writing(store: Path, model: Path) -> Writing:
    """Pipelines into the store."""
    return Writing(store, model)


def without_writer(store: Path) -> dict[str, Any]:
    """All units of a store without what tells where rejected rows stood, and who wrote them."""
    theirs = ("rejects", "rejects_sha256", "sha256", "bytes", "path")
    return {u["unit"]: {k: v for k, v in u.items() if k not in theirs} for u in units_of(store)}


def content_of(store: Path) -> list[Any]:
    """Every row of a store with its kept values, in the order of the shards."""
    names = ("id", "row_hash", "text", "lang", "n", "tokens")
    return [tuple(row[name] for name in names) for row in rows_of(store)]


def embedded_by_command(tmp_path: Path, rows: list[Row], model: Path, name: str = "other") -> Path:
    """The store that the command makes, or brings up to date, of a file with these rows."""
    table = {name: [row[name] for row in rows] for name in ("id", "lang", "n")}
    write_parquet(tmp_path / "in.parquet", [row["text"] for row in rows], **table)
    store = tmp_path / name
    options = ["--partition", "content", "--id-column", "id", "--keep-columns", "lang,n"]
    options += ["--unit-tokens", "200", "--max-rejects", "1", "--dtype", "float32"]
    options += ["--model", str(model), "--index", "Flat"]
    argv = ["embed", "--input", str(tmp_path / "in.parquet"), "--store", str(store), *options]
    assert main(argv) == 0
    return store


def test_the_store_is_the_one_that_embed_makes_of_a_file(
    writing: Writing, model: Path, tmp_path: Path
) -> None:
    rows = collection(60)
    wanted = embedded_by_command(tmp_path, rows, model)
    shuffled = random.Random(1).sample(rows, len(rows))
    result = writing.write(shuffled, index="Flat")
    assert without_writer(writing.store) == without_writer(wanted)
    assert content_of(writing.store) == content_of(wanted)
    assert sorted(r["reason"] for r in rejects_of(writing.store)) == ["null text"] * 6
    assert result.duplicate_ids == 1
    mine = sb.open_store(writing.store)
    theirs = sb.open_store(wanted)
    assert mine.manifest.buckets == theirs.manifest.buckets
    assert mine.manifest.space.id == theirs.manifest.space.id
    ids, vectors = mine.numpy()
    wanted_ids, wanted_vectors = theirs.numpy()
    assert list(ids) == list(wanted_ids)
    np.testing.assert_array_equal(vectors, wanted_vectors)
    assert mine.search("a dog ran", k=5) == theirs.search("a dog ran", k=5)


def test_rows_that_stay_are_carried_and_others_are_embedded_or_deleted(writing: Writing) -> None:
    rows = collection(60)
    assert writing.write(rows).ledger["embedded"] > 0
    again = writing.write(random.Random(2).sample(rows, len(rows)))
    assert again.ledger["carried"] == again.ledger["written"]
    assert again.changes == {"added": 0, "changed": 0, "deleted": 0}
    changed = [*rows[2:], {"id": "new", "text": "a new text of a dog", "lang": "en", "n": 0}]
    night = writing.write(changed)
    assert night.changes == {"added": 1, "changed": 0, "deleted": 2}
    assert night.ledger["embedded"] == 1
    assert night.ledger["reused"] > 0
    assert "new" in ids_of(writing.store)
    assert "i1" not in ids_of(writing.store)


def test_the_command_and_pipelines_take_turns(
    writing: Writing, model: Path, tmp_path: Path
) -> None:
    """Vectors are reused both ways; only the names of rejected rows' file differ."""
    rows = collection(60)
    writing.write(rows, index="Flat")
    first = without_writer(writing.store)
    assert embedded_by_command(tmp_path, rows, model, writing.store.name) == writing.store
    second = manifest_of(writing.store)
    assert second["work"]["embedded"] == 0
    assert without_writer(writing.store).keys() == first.keys()
    third = writing.write(rows)
    assert (third.previous, third.ledger["embedded"]) == (second["run"], 0)
    assert len(ids_of(writing.store)) == 55


@pytest.mark.parametrize("shape", ["rows", "named", "tables", "mixed"])
def test_rows_of_any_shape_make_the_same_units(writing: Writing, shape: str) -> None:
    rows = [row for row in collection(40)[:-1] if row["text"]]
    table = pa.Table.from_pylist(rows)
    shapes: dict[str, list[Any]] = {
        "rows": [beam.Row(**row) for row in rows],
        "named": [Doc(row["id"], row["text"]) for row in rows],
        "tables": [table.slice(0, 30), *table.slice(30).to_batches()],
        "mixed": [*rows[:20], table.slice(20)],
    }
    said: dict[str, Any] = {"keep_columns": ""} if shape == "named" else {}
    writing.write(shapes[shape], **said)
    found = [(row["id"], row["text"]) for row in rows_of(writing.store)]
    assert sorted(found) == sorted((row["id"], row["text"]) for row in rows)
    assert len(without_writer(writing.store)) == 2
    if shape != "named":
        kept = {row["id"]: (row["lang"], row["n"]) for row in rows_of(writing.store)}
        assert kept == {row["id"]: (row["lang"], row["n"]) for row in rows}


def test_pairs_of_id_and_text(writing: Writing) -> None:
    """By Beam's own runner, with threads."""
    threads = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    pipeline = writing.built([("a", "a dog"), (7, "a cat")], threads, keep_columns="")
    pipeline.run().wait_until_finish()
    assert {row["id"]: row["text"] for row in rows_of(writing.store)} == {
        "a": "a dog",
        "7": "a cat",
    }


def test_rows_that_cannot_be_embedded_are_rejected_with_a_reason(writing: Writing) -> None:
    good = [{"id": k, "text": f"a dog and {k}", "lang": "en", "n": k} for k in range(20)]
    bad = [
        {"id": "a", "text": None, "lang": "en", "n": 1},
        {"id": "b", "text": 5, "lang": "en", "n": 1},
        {"id": "c", "lang": "en", "n": 1},
        {"id": "d", "text": "  ", "lang": "en", "n": 1},
        {"id": None, "text": "a dog", "lang": "en", "n": 1},
        {"id": 1.5, "text": "a dog", "lang": "en", "n": 1},
        {"id": "f", "text": "a dog", "lang": "en", "n": "many"},
    ]
    writing.write([*good, *bad], keep_columns="lang,n:int")
    found = sorted((row["id"] or "", row["reason"]) for row in rejects_of(writing.store))
    assert found == [
        ("", "id is neither string nor integer"),
        ("", "null id"),
        ("a", "null text"),
        ("b", "text is not a string"),
        ("c", "no field 'text'"),
        ("d", "empty text"),
        ("f", "kept column n is not int"),
    ]
    assert len(ids_of(writing.store)) == len(good)
    writing.fails(
        [*good, *bad], sb.DataGateError, "rows rejected, more than max_rejects", max_rejects=0
    )


def test_values_of_databases_keep_their_types(writing: Writing) -> None:
    day = datetime.date(2026, 1, 2)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    rows = [
        {"id": 1, "text": "a dog", "price": Decimal("1.5"), "day": day, "at": moment, "mixed": 1},
        {
            "id": 2,
            "text": "a cat",
            "price": 2,
            "day": None,
            "at": Timestamp.of(moment),
            "mixed": "x",
        },
        {"id": 3, "text": "a cow", "price": None, "day": day, "at": None, "tags": ["a", 1]},
    ]
    writing.write(rows, keep_columns="price,day,at,mixed,tags")
    found = {row.pop("id"): row for row in rows_of(writing.store)}
    assert [found[key]["price"] for key in "123"] == [1.5, 2.0, None]
    assert [found[key]["day"] for key in "123"] == [day, None, day]
    assert [found[key]["at"] for key in "123"] == [moment, moment, None]
    assert [found[key]["mixed"] for key in "123"] == ["1", "x", None]
    assert found["3"]["tags"] == '["a",1]'
    again = writing.write(rows, keep_columns="price,day,at,mixed,tags")
    assert again.ledger["carried"] == 3


def test_a_column_of_arrow_tables_keeps_its_type(writing: Writing) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
    rows = [{"id": k, "text": f"a dog {k}", "tags": [str(k)]} for k in range(4)]
    nulls = pa.table({"id": [9], "text": ["a cat"], "tags": pa.nulls(1)})
    writing.write([pa.Table.from_pylist(rows, schema=schema), nulls], keep_columns="tags")
    found = {row["id"]: row["tags"] for row in rows_of(writing.store)}
    assert found == {**{str(k): [str(k)] for k in range(4)}, "9": None}


def test_tables_whose_columns_have_other_types(writing: Writing) -> None:
    tables = [
        pa.table({"id": pa.array(["a"], pa.string_view()), "text": [b"a dog"], "n": [1]}),
        pa.table({"id": [b"b"], "text": ["a cat"], "n": [2.5], "odd": pa.nulls(1)}),
        pa.table({"id": [Decimal(3)], "text": pa.array(["a cow"]).dictionary_encode()}),
    ]
    writing.write(tables, keep_columns="n")
    assert {row["id"]: row["n"] for row in rows_of(writing.store)} == {
        "a": 1.0,
        "b": 2.5,
        "3": None,
    }
    rows = [*tables[:2], {"id": 3, "text": "a cow", "n": "7"}]  # read as the store has it
    writing.write(rows, keep_columns="n")
    assert {row["id"]: row["n"] for row in rows_of(writing.store)} == {"a": 1.0, "b": 2.5, "3": 7.0}


def test_documents_are_cut_into_pieces(writing: Writing) -> None:
    rows = [{"id": str(k), "title": f"Dog {k}", "text": "A dog ran. A cat sat."} for k in range(3)]
    said = {"chunks": "sentences", "chunk_prefix": "{title}: ", "keep_columns": "title"}
    result = writing.write(rows, **said)
    assert (result.ledger["read"], result.ledger["pieces"]) == (3, 6)
    found = {(row["id"], row["piece"]): row["text"] for row in rows_of(writing.store)}
    assert found["1", 1] == "A cat sat."


def test_a_template_makes_the_text(writing: Writing) -> None:
    rows = [{"id": "a", "title": "Dog", "body": "It ran."}, {"id": "b", "title": "Cat"}]
    writing.write(rows, text_template="{title}. {body}", keep_columns="")
    assert {row["id"]: row["text"] for row in rows_of(writing.store)} == {
        "a": "Dog. It ran.",
        "b": "Cat. ",
    }


@pytest.mark.slow
def test_the_pipeline_in_yaml(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docstring_parser", reason="Beam's extra yaml is not installed")
    from apache_beam.yaml import main as beam_yaml

    monkeypatch.chdir(tmp_path)
    text = (RECIPES / "write-store.yaml").read_text()
    Path("write-store.yaml").write_text(text.replace("model: minilm", f"model: {model}"))
    shutil.copy(RECIPES / "providers.yaml", "providers.yaml")
    Path("reviews").mkdir()
    rows = {"id": ["a", "b"], "body": ["a dog", "a cat"], "lang": ["en", "de"]}
    pq.write_table(pa.table(rows), "reviews/a.parquet")
    beam_yaml.run(["--yaml_pipeline_file=write-store.yaml", "--runner=FnApiRunner"])
    found = {row["id"]: (row["text"], row["lang"]) for row in rows_of(Path("reviews-store"))}
    assert found == {"a": ("a dog", "en"), "b": ("a cat", "de")}


# --- what ends a run, or is refused


def test_rows_that_would_empty_the_store_are_refused(writing: Writing) -> None:
    rows = collection(30)
    writing.write(rows)
    writing.fails(
        [], sb.DataGateError, "the PCollection is empty, and .* has 28 rows", max_deletes=1
    )
    writing.fails(rows[:10], sb.DataGateError, "would be deleted, more than max_deletes 0.5")
    assert writing.write(rows[:10], max_deletes=1).ledger["written"] == 9


def test_a_new_store_of_no_rows(writing: Writing) -> None:
    assert writing.write([]).ledger["written"] == 0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"append": True}, "append: the PCollection is the whole collection"),
        ({"partition": "file"}, "partition 'file': rows of a PCollection"),
        ({"limit": 5}, "limit: it is an option for files"),
        ({"text_column": "body"}, "text_column: say text="),
        ({"pooler": "meen"}, "pooler 'meen' is not known"),
        ({"dim": 0}, "dim: 0 is not a whole number above zero"),
    ],
)
def test_options_that_do_not_work_are_refused_when_the_graph_is_made(
    writing: Writing, said: dict[str, Any], message: str
) -> None:
    with pytest.raises(sb.OptionError, match=message):
        writing.built([], **said)


def test_an_unknown_option_is_refused_with_a_near_one(store: Path) -> None:
    with pytest.raises(TypeError, match=r"WriteStore\(\) got .*'modl'; did you mean model"):
        sb.WriteStore(store, modl="minilm")


def test_a_store_by_file_is_refused(writing: Writing, tmp_path: Path, model: Path) -> None:
    write_parquet(tmp_path / "in.parquet", ["a dog"], id=["a"])
    argv = ["embed", "--input", str(tmp_path / "in.parquet"), "--id-column", "id", "--model"]
    assert main([*argv, str(model), "--store", str(writing.store)]) == 0
    with pytest.raises(sb.OptionError, match="has its units by file"):
        writing.built([])
    rows = [{"id": "a", "text": "a dog"}]
    writing.write(rows, reembed=True, keep_columns="")
    assert manifest_of(writing.store)["partition"] == "content"


def test_a_field_that_rows_lack_is_named(writing: Writing) -> None:
    rows = [beam.Row(id=1, body="a dog", lang="en", n=1)]
    with pytest.raises(sb.OptionError, match=r"no field 'text' \(text\), but body, id, lang, n"):
        writing.built(rows)
    dicts = [{"id": 1, "body": "a dog", "lang": "en"}]
    writing.fails(dicts, sb.OptionError, r"no field 'n' \(keep_columns\), but", text="body")
    writing.fails([5], sb.OptionError, "an element of type int is no row")
    table = pa.table({"id": [1], "text": [2], "lang": ["en"], "n": [1]})
    writing.fails([table], sb.OptionError, "'text' is int64, not string")


def test_an_unbounded_collection_is_refused(writing: Writing) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    rows = pipeline | beam.Create([("a", "a dog")])
    rows.is_bounded = False
    with pytest.raises(sb.OptionError, match="unbounded PCollection has no end"):
        rows | writing.transform()


def test_more_text_than_memory_may_group_is_refused(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.options.resolve.measure_memory", lambda: 400
    )
    writing.fails(collection(30), sb.OptionError, "the rows are grouped in memory here")
    assert writing.write(collection(2)[:1]).ledger["written"] == 1


# --- more than one execution


def test_a_pipeline_executed_twice_makes_one_snapshot(writing: Writing) -> None:
    rows = collection(30)
    pipeline = writing.built(rows)
    pipeline.run().wait_until_finish()
    first = manifest_of(writing.store)
    pipeline.run().wait_until_finish()
    assert manifest_of(writing.store) == first
    writing.write(rows[:-2], index="none")
    with pytest.raises(sb.SentenceBeamError, match="was executed before .committed.; build"):
        pipeline.run().wait_until_finish()
    assert len(ids_of(writing.store)) == 27


@pytest.mark.slow
def test_a_second_execution_with_other_rows_fails(writing: Writing, tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("a dog")
    pipeline = beam.Pipeline("FnApiRunner")
    lines = pipeline | beam.io.ReadFromText(str(source)) | beam.Map(lambda text: (1, text))
    _ = lines | writing.transform(keep_columns="")
    pipeline.run().wait_until_finish()
    first = manifest_of(writing.store)
    source.write_text("a cat")
    with pytest.raises(sb.SentenceBeamError, match="executed before, with other rows; build"):
        pipeline.run().wait_until_finish()
    assert manifest_of(writing.store) == first


def test_a_run_that_committed_since_the_graph_was_made_wins(writing: Writing) -> None:
    rows = collection(30)
    late = writing.built(rows[:20])
    writing.write(rows)
    with pytest.raises(sb.SentenceBeamError, match="committed after this pipeline was built"):
        late.run().wait_until_finish()
    assert len(ids_of(writing.store)) == 28
    assert lease.writer(str(writing.store)) is None


def test_a_store_that_another_run_writes_is_left_alone(writing: Writing) -> None:
    writing.write(collection(20))
    other = lease.Lease.from_this_process("other", "FnApiRunner", "job", in_process=True)
    lease.acquire(str(writing.store), other)
    writing.fails(collection(30), sb.SentenceBeamError, "is being written by run other")
    assert lease.writer(str(writing.store)) == "other"


def test_a_failed_step_is_done_again_by_the_next_pipeline(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of the first one are adopted, its lease is that of a process that goes on."""
    rows = collection(40)
    with monkeypatch.context() as patch:
        patch.setattr("sentence_beam.transforms.beam.settle.settle_run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writing.write(rows)
    root = str(writing.store)
    lease.release(root, lease.writer(root) or "")
    result = writing.write(rows)
    assert result.status == "committed"
    assert sum(result.resumed.values()) == len(without_writer(writing.store))


def test_a_plan_that_is_made_again_is_the_same(store: Path, model: Path) -> None:
    """As by an engine that does a bundle again; the lease is the run's own then."""
    job = embed_job(store, model, "", partition="content")
    here = Engine("FnApiRunner", "job", in_process=True)
    summary = summed(batches(collection(50), job))
    (first,) = begin_collection(summary, job, here)
    assert isinstance(first, ToPack)
    assert lease.holds(str(store), job.run.id)
    assert list(begin_collection(summary, job, here)) == [first]
    other = summed(batches(collection(40), job))
    (problem,) = begin_collection(other, job, here)
    assert "executed before, with other rows" in problem.message


def test_a_bundle_that_is_done_again_packs_its_rows_once(store: Path, model: Path) -> None:
    job = embed_job(store, model, "", partition="content")
    found = batches(collection(50), job)
    work = ToPack(Buckets.choose(51, 1000, 300), (("lang", "str"),))
    step = PackRowsFn(job)
    step.setup()
    for _ in range(2):
        step.start_bundle()
        blocks = [block for batch in found for block in step.process(batch, [work])]
        blocks += [packed.value for packed in step.finish_bundle()]
    assert sum(sum(rows.counts) for _, rows in blocks) == 51


# --- batches, and sums that do not depend on them


def batches(rows: list[Any], job: EmbedJob) -> list[row_batches.RowBatch]:
    """The batches of rows, as one bundle makes them."""
    batcher = row_batches.RowBatcher(job)
    found = [batch for row in rows for batch in batcher.add(row)]
    return [*found, *batcher.finish()]


def summed(found: list[row_batches.RowBatch]) -> RowsSummary:
    """The sums over batches."""
    summary = RowsSummary()
    for batch in found:
        summary = summary.merge(batch.summary)
    return summary


def test_half_characters_are_rejected(store: Path, model: Path) -> None:
    job = embed_job(store, model, "", partition="content")
    half = "half \ud800"
    rows = [
        {"id": "a", "text": half, "lang": "en"},
        {"id": half, "text": "a dog", "lang": "en"},
        {"id": "c", "text": "a dog", "lang": half},
    ]
    (packed,) = batches(rows, job)
    found = row_batches.unpack_batch(packed, job.columns, ())
    assert [one.reason for one in found.rejects] == ["not UTF-8"] * 2 + ["kept column not UTF-8"]


def test_large_tables_are_cut(store: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = embed_job(store, model, "", partition="content")
    monkeypatch.setattr(row_batches, "BATCH_BYTES", 2000)
    table = pa.table({"id": range(100), "text": ["a dog" * 10] * 100, "lang": ["en"] * 100})
    found = batches([table, table.slice(50, 0)], job)
    assert sum(batch.summary.rows for batch in found) == 100
    assert len(found) == 4


def test_the_sums_are_the_same_in_any_order_and_batches(
    monkeypatch: pytest.MonkeyPatch, store: Path, model: Path
) -> None:
    job = embed_job(store, model, "", partition="content")
    rows = collection(50)

    def total(some: list[Row], size: int) -> RowsSummary:
        monkeypatch.setattr(row_batches, "BATCH_ROWS", size)
        return summed(batches(some, job))

    whole = total(rows, 1000)
    assert total(random.Random(3).sample(rows, len(rows)), 7) == whole
    assert whole.rows == 51
    for place, name, value in ((0, "id", "other"), (2, "text", "other"), (3, "lang", "xx")):
        edited = [*rows]
        edited[place] = {**rows[place], name: value}
        assert total(edited, 1000).checksum != whole.checksum
    assert total([*rows, rows[1]], 1000).checksum != whole.checksum
