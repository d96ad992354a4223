"""The same store from Prism, which is what `--runner=DirectRunner` means where it can be had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.corpora import sentences, write_jsonl
from helpers.engines import OPTIONS, QUIET, ROOT, files_of, neighbours_of, start, the_same

from sentence_beam.transforms.store import open_store

pytestmark = pytest.mark.timeout(300)
ROWS = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import window
from sentence_beam import EmbedRows

def told(row, place=beam.DoFn.WindowParam):
    print("ROW", row[0], float(place.start), *(row[1:] if isinstance(row[1], str) else row[1].shape), flush=True)

model, kind, *flags = sys.argv[1:]
with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
    texts = pipeline | beam.Create([(10 * n, "dog" if n % 3 else "") for n in range(6)])
    timed = texts | beam.MapTuple(lambda time, text: window.TimestampedValue((time, text), time))
    rows = timed | beam.WindowInto(window.FixedWindows(30))
    if kind == "stream":
        batches = rows | beam.BatchElements(min_batch_size=1, max_batch_size=4, max_batch_duration_secs=1)
        rows = batches | beam.FlatMap(list)
    found = rows | EmbedRows(model, dtype="float32")
    found.rows | "Rows" >> beam.Map(told)
    found.rejected | "Rejected" >> beam.Map(told)
"""


@pytest.mark.parametrize(
    ("runner", "partition"),
    [
        ("PrismRunner", "file"),
        pytest.param("PrismRunner", "content", marks=pytest.mark.slow),
        pytest.param("DirectRunner", "file", marks=pytest.mark.slow),
        pytest.param("DirectRunner", "content", marks=pytest.mark.slow),
    ],
)
def test_the_same_bytes(
    prism: str, few: str, model: Path, tmp_path: Path, runner: str, partition: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    options = [
        "--input",
        few,
        "--model",
        model,
        *OPTIONS,
        "--partition",
        partition,
        "--index",
        "Flat",
    ]
    start(["embed", *options, "--store", here]).ended().ok()
    start(
        ["embed", *options, "--store", there, f"--runner={runner}", f"--prism_location={prism}"]
    ).ended().ok()
    assert the_same(there) == the_same(here)


@pytest.mark.slow
def test_the_same_files_within_a_budget(prism: str, model: Path, tmp_path: Path) -> None:
    for number in range(6):
        rows = enumerate(sentences(30, 100 * number))
        path = tmp_path / "in" / f"{number}.jsonl"
        write_jsonl(path, [{"id": f"{number}-{row}", "text": text} for row, text in rows])
    here, there = tmp_path / "here", tmp_path / "there"
    options = ["--input", tmp_path / "in" / "*.jsonl", "--model", model, "--budget", 700]
    options += ["--id-column", "id", "--unit-tokens", 200, "--dtype", "float32"]
    engine = ["--runner=PrismRunner", f"--prism_location={prism}"]
    for taken in (2, 4):
        for store, flags in ((here, []), (there, engine)):
            start(["embed", *options, "--store", store, *flags]).ended().ok()
        pending = [open_store(str(store)).manifest.pending for store in (here, there)]
        assert pending[0] == pending[1]
        assert pending[0].files == 6 - taken
        assert the_same(there) == the_same(here)


@pytest.mark.slow
def test_the_same_neighbours(prism: str, corpus: str, model: Path, tmp_path: Path) -> None:
    store, here, there = (tmp_path / name for name in ("store", "here", "there"))
    index = ["--index", "IVF8,SQ8", "--unit-tokens", 600]
    start(
        [
            "embed",
            "--input",
            corpus,
            "--store",
            store,
            "--model",
            model,
            "--id-column",
            "id",
            *index,
        ]
    ).ended().ok()
    start(neighbours_of(store, here)).ended().ok()
    flags = ["--runner=PrismRunner", f"--prism_location={prism}"]
    start([*neighbours_of(store, there), *flags]).ended().ok()
    assert sorted(files_of(here)) == ["neighbours-000000.parquet"]
    assert files_of(there) == files_of(here)


@pytest.mark.slow
def test_the_same_check(prism: str, corpus: str, model: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    start(["embed", "--input", corpus, "--store", store, "--model", model, *OPTIONS]).ended().ok()
    next((store / "embeddings").iterdir()).unlink()
    here = start(["verify", "--store", store]).ended()
    there = start(
        ["verify", "--store", store, "--runner=PrismRunner", f"--prism_location={prism}"]
    ).ended()
    assert "the shard is missing" in here.err
    assert (there.status, there.err) == (here.status, here.err)


def test_a_prism_that_is_not_there(corpus: str, model: Path, tmp_path: Path) -> None:
    arguments = [
        "embed",
        "--input",
        corpus,
        "--store",
        tmp_path / "store",
        "--model",
        model,
        *OPTIONS,
    ]
    outcome = start([*arguments, "--runner=PrismRunner", "--prism_location=nowhere/prism"]).ended()
    outcome.failed(1, "Prism could not be", "--prism_location")


@pytest.mark.parametrize("kind", [pytest.param("batch", marks=pytest.mark.slow), "stream"])
def test_rows_of_a_pipeline(prism: str, model: Path, kind: str) -> None:
    """Windowed rows get their vectors in their windows, in a batch and gathered for a second in a
    stream.
    """
    flags = ["--runner=PrismRunner", f"--prism_location={prism}", "--environment_type=LOOPBACK"]
    flags += ["--streaming"] if kind == "stream" else []
    command = [sys.executable, "-c", ROWS, str(model), kind, *flags]
    env = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = sorted(
        line.removeprefix("ROW ") for line in done.stdout.splitlines() if line.startswith("ROW ")
    )
    assert found == [
        "0 0.0  empty text",
        "10 0.0 24",
        "20 0.0 24",
        "30 30.0  empty text",
        "40 30.0 24",
        "50 30.0 24",
    ]


@pytest.mark.slow
def test_a_queue_into_postgres(prism: str, model: Path, pgvector: str) -> None:
    """The recipe of a stream, with the messages that it makes up."""
    import psycopg

    flags = [
        "--runner=PrismRunner",
        f"--prism_location={prism}",
        "--environment_type=LOOPBACK",
        "--model",
        str(model),
    ]
    command = [sys.executable, str(ROOT / "docs/recipes/stream.py"), "--to", pgvector, *flags]
    env = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(pgvector) as connection:
        found = connection.execute(
            "SELECT id, text, vector_dims(embedding) FROM messages ORDER BY id"
        ).fetchall()
    assert found == [("a", "the dog sat on the mat", 24), ("b", "rates were raised", 24)]
    assert {"b'no JSON': null text", "c: empty text"} <= {
        line.split(":", 2)[2]
        for line in done.stderr.splitlines()
        if line.startswith("WARNING:root:")
    }
