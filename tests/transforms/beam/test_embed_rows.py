"""EmbedRows in pipelines: outputs, windows, types, metrics, and the vectors that `embed` writes."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.typehints.row_type import RowTypeConstraint
from helpers import eager
from helpers.corpora import sentences, write_parquet

import sentence_beam as sb
from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.beam import embed_rows as embed_rows_module

OUTPUTS = ("rows", "rejected")


class Sentence(NamedTuple):
    """A row with a schema."""

    id: int
    text: str


def embed_rows(model: Path, **said: Any) -> sb.EmbedRows:
    return sb.EmbedRows(str(model), **{"dtype": "float32", **said})


def test_the_vectors_are_those_that_embed_writes(model: Path, tmp_path: Path) -> None:
    texts = [*sentences(40), "dog", None]
    ids = [str(n) for n in range(len(texts))]
    write_parquet(tmp_path / "in.parquet", texts, id=ids)
    store, options = (
        str(tmp_path / "store"),
        ["--id-column", "id", "--dtype", "float32", "--max-rejects", "0.5"],
    )
    options += ["--model", str(model), "--pooler", "mean+max"]
    assert main(["embed", "--input", str(tmp_path / "in.parquet"), "--store", store, *options]) == 0
    kept = sb.open_store(store)
    wanted = dict(zip(*kept.numpy(), strict=True))
    rows = [{"id": row_id, "text": text} for row_id, text in zip(ids, texts, strict=True)]
    transform = embed_rows(model, pooler="mean+max")
    found = eager.outputs(transform, rows, names=OUTPUTS)
    assert {row["id"] for row in found["rows"]} == set(wanted)
    for row in found["rows"]:
        np.testing.assert_allclose(row["embedding"], wanted[row["id"]], rtol=0, atol=2e-5)
    assert [row["reason"] for row in found["rejected"]] == ["null text"]
    assert transform.space.id == kept.space.id


def test_rows_keep_their_windows_and_times(model: Path) -> None:
    def told(
        row: Any, stamp: Any = beam.DoFn.TimestampParam, place: Any = beam.DoFn.WindowParam
    ) -> Any:
        return row["n"], float(stamp), float(place.start)

    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([{"n": n, "text": "dog" if n % 3 else ""} for n in range(6)])
        timed = rows | beam.Map(lambda row: window.TimestampedValue(row, 10 * row["n"]))
        found = timed | beam.WindowInto(window.SlidingWindows(40, 20)) | embed_rows(model)
        both = {
            n: [
                (n, 10.0 * n, float(start))
                for start in range(-20, 60, 20)
                if start <= 10 * n < start + 40
            ]
            for n in range(6)
        }
        assert_that(
            found.rows | "A" >> beam.Map(told),
            equal_to(both[1] + both[2] + both[4] + both[5]),
            label="a",
        )
        assert_that(found.rejected | "B" >> beam.Map(told), equal_to(both[0] + both[3]), label="b")


def test_a_schema_stays_a_schema(model: Path) -> None:
    """So that what follows a shuffle, SQL or YAML knows the columns."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([Sentence(1, "dog"), Sentence(2, "")]).with_output_types(
            Sentence
        )
        found = rows | embed_rows(model)
        assert isinstance(found.rows.element_type, RowTypeConstraint)
        assert dict(found.rows.element_type._fields).keys() == {
            "id",
            "text",
            "embedding",
            "norm",
            "tokens",
            "truncated",
        }
        shuffled = (
            found.rows
            | beam.Reshuffle()
            | beam.Map(lambda row: (row.id, len(row.embedding), row.tokens))
        )
        assert_that(shuffled, equal_to([(1, 24, 3)]), label="rows")
        left = (
            found.rejected
            | "Again" >> beam.Reshuffle()
            | beam.Map(lambda row: (row.id, row.text, row.reason))
        )
        assert_that(left, equal_to([(2, "", "empty text")]), label="rejected")


def test_no_row_is_lost_on_its_way_to_parquet(model: Path, tmp_path: Path) -> None:
    """Beam's writer takes batches, and what the end of a bundle gives to such a step may be
    lost.
    """
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([Sentence(1, "dog"), Sentence(2, "")]).with_output_types(
            Sentence
        )
        found = rows | embed_rows(model)
        _ = found.rows | "A" >> beam.io.WriteToParquet(str(tmp_path / "a"))
        _ = found.rejected | "B" >> beam.io.WriteToParquet(str(tmp_path / "b"))
    assert pq.read_table(tmp_path / "a-00000-of-00001")["id"].to_pylist() == [1]
    assert pq.read_table(tmp_path / "b-00000-of-00001")["reason"].to_pylist() == ["empty text"]


def test_a_row_type_without_the_text_is_refused_when_the_graph_is_made(model: Path) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    rows = pipeline | beam.Create([beam.Row(id=1, body="dog")])
    with pytest.raises(
        sb.OptionError, match="rows have no field 'text', but id, body; say text='...'"
    ):
        rows | embed_rows(model)
    taken = pipeline | "Taken" >> beam.Create([beam.Row(text="dog", norm=1)])
    with pytest.raises(sb.OptionError, match="rows have a field 'norm' already"):
        taken | "Again" >> embed_rows(model)
    for name, element in (("Untitled", beam.Row(text="dog")), ("Pair", ("a", "dog"))):
        untitled = pipeline | name >> beam.Create([element])
        with pytest.raises(sb.OptionError, match="no field 'title'"):
            untitled | f"Embed{name}" >> embed_rows(
                model, chunks="sentences", chunk_prefix="{title}: "
            )


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"pooler": "meen"}, "pooler 'meen' is not known"),
        ({"chunks": "budgets"}, "did you mean budget?"),
        ({"dtype": "fp16"}, "fp16"),
    ],
)
def test_options_are_checked_when_the_graph_is_made(
    model: Path, said: dict[str, str], message: str
) -> None:
    with pytest.raises(sb.OptionError) as error:
        embed_rows(model, **said)
    assert message in str(error.value)


def test_types_and_no_word_about_type_hints(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = {
        "pair": [("a", "dog")],
        "dict": [{"text": "dog"}],
        "batch": [pa.record_batch({"text": ["dog"]})],
    }
    with caplog.at_level(logging.WARNING), beam.Pipeline("FnApiRunner") as pipeline:
        types = {
            name: (
                pipeline | name >> beam.Create(items) | f"Embed{name}" >> embed_rows(model)
            ).rows.element_type
            for name, items in kinds.items()
        }
    assert types == {
        "pair": beam.typehints.Tuple[str, np.ndarray],
        "dict": beam.typehints.Dict[str, beam.typehints.Any],
        "batch": pa.RecordBatch,
    }
    assert not [record.message for record in caplog.records if "hint" in record.message]


def test_metrics_have_the_counts_of_embed(model: Path) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    _ = (
        pipeline
        | beam.Create([{"text": "dog"}, {"text": "a cat"}, {"text": "dog"}, {"text": ""}])
        | embed_rows(model)
    )
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(MetricsFilter().with_namespace("sentence_beam"))
    counts = {each.key.metric.name: each.committed for each in found["counters"]}
    assert (counts["rows"], counts["rejected"], counts["embedded"], counts["duplicates"]) == (
        3,
        1,
        2,
        1,
    )
    assert {each.key.metric.name for each in found["distributions"]} >= {"forward_ms", "unit_rows"}


def test_one_model_a_process(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_beam.transforms.steps.embed.element_rows import RowsJob

    loaded, load = [], RowsJob.load
    monkeypatch.setattr(RowsJob, "load", lambda job: loaded.append(1) or load(job))
    with beam.Pipeline("FnApiRunner") as pipeline:
        once = pipeline | beam.Create([{"text": "dog"}] * 5) | embed_rows(model)
        _ = once.rows | beam.Reshuffle() | beam.Map(lambda row: row["tokens"])
    assert loaded == [1]


def test_an_engine_needs_a_dtype_and_its_accelerator_is_the_device(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []
    fn = embed_rows_module.EmbedRowsFn
    monkeypatch.setattr(
        embed_rows_module, "EmbedRowsFn", lambda job, shared: jobs.append(job) or fn(job, shared)
    )
    engine = PipelineOptions(["--environment_type=EXTERNAL", "--environment_config=h:1"])

    def expanded(runner: str, transform: Any) -> Any:
        pipeline = beam.Pipeline(runner, options=engine if runner == "PortableRunner" else None)
        _ = pipeline | beam.Create([{"text": "dog"}]) | transform
        return jobs[-1].machine

    with pytest.raises(sb.OptionError, match="dtype auto cannot know the workers' processors"):
        expanded("PortableRunner", embed_rows(model, dtype="auto"))
    expanded("FnApiRunner", embed_rows(model, dtype="auto"))
    assert expanded("PortableRunner", embed_rows(model)).refuses_unseen_gpu
    hinted = embed_rows(model).with_resource_hints(accelerator="type:nvidia-l4;count:1")
    assert expanded("PortableRunner", hinted).device == "cuda"
    assert expanded("FnApiRunner", hinted).device == "auto"


@pytest.mark.parametrize("chunks", ["none", "budget", "budget:combine=mean"])
def test_a_text_of_which_the_model_sees_nothing_is_empty(chunks: str) -> None:
    rows = [{"id": 1, "text": "a dog"}, {"id": 2, "text": "\u200b\u00ad"}]
    found = eager.outputs(embed_rows(Path("minilm"), chunks=chunks), rows, names=OUTPUTS)
    assert [row["id"] for row in found["rows"]] == [1]
    assert [(row["id"], row["reason"]) for row in found["rejected"]] == [(2, "empty text")]
