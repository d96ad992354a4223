"""What `plan` measures before it says how long a run will take."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_jsonl, write_parquet

from sentence_beam.pipelines.common import beam_flags, embed_options
from sentence_beam.pipelines.plan import list_speeds
from sentence_beam.transforms.steps.options.embed import PlanOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.steps.plan.estimate import Prediction, predict


def predicted(inputs: Path, model: Path, *more: str, files: str = "*.parquet") -> Prediction:
    arguments = [
        "--input",
        f"{inputs}/{files}",
        "--store",
        f"{inputs}/none",
        "--model",
        str(model),
        *more,
    ]
    flags = [*arguments, "--dtype", "float32"]
    args, _ = beam_flags.parse(embed_options.parser("plan"), flags)
    return predict(resolve_run(PlanOptions(**vars(args)), None, "run", local=True))


@pytest.fixture
def uneven(inputs: Path) -> Path:
    """Nine files of forty rows: short texts in the first eight, long ones in the last."""
    for number in range(9):
        texts = sentences(40, 40 * number)
        write_parquet(
            inputs / f"{number}.parquet",
            texts if number < 8 else [" ".join([text] * 20) for text in texts],
        )
    return inputs


def test_every_row_of_a_small_collection_is_measured_once(uneven: Path, model: Path) -> None:
    found = predicted(uneven, model)
    assert found.pace is not None
    assert found.pace.rows == found.plan.rows == 360
    assert found.pace.expected == pytest.approx(found.plan.counts.tokens)
    assert found.seconds == pytest.approx(found.pace.loading + found.pace.seconds)
    assert not (uneven / "none").exists()
    tokens, host, device = (
        list_speeds(found.pace)[f"{name}tokens_s"] for name in ("", "host_", "device_")
    )
    assert 1 / tokens == pytest.approx(1 / host + 1 / device, rel=0.01), (
        "on a CPU both take the same cores"
    )


@pytest.mark.parametrize("limit", [None, 50])
def test_what_lies_beside_the_texts_is_no_text(
    inputs: Path, model: Path, limit: int | None
) -> None:
    texts, more = sentences(400), [] if limit is None else ["--limit", str(limit)]
    write_jsonl(
        inputs / "a.jsonl",
        [{"url": "https://example.org/" + 500 * "a", "text": text} for text in texts],
    )
    found = predicted(inputs, model, *more, files="*.jsonl")
    assert found.pace is not None
    assert found.plan.rows == pytest.approx(limit or len(texts))
    write_parquet(inputs / "a.parquet", texts[:limit])
    same = predicted(inputs, model)
    assert same.pace is not None
    assert found.plan.counts.tokens * found.pace.real_share == pytest.approx(
        same.plan.counts.tokens * same.pace.real_share
    )


def test_nothing_to_embed_has_no_pace(inputs: Path, model: Path) -> None:
    write_parquet(inputs / "a.parquet", [])
    found = predicted(inputs, model)
    assert found.pace is None
    assert list_speeds(found.pace) == {
        "tokens_s": None,
        "host_tokens_s": None,
        "device_tokens_s": None,
    }
    assert found.seconds == 0


def test_by_content_unchanged_files_are_told_though_all_are_read(
    inputs: Path, model: Path, run: Run
) -> None:
    for name, start in (("a", 0), ("b", 20)):
        write_parquet(
            inputs / f"{name}.parquet", sentences(20, start), id=pa.array(range(start, start + 20))
        )
    there = (
        "--input",
        f"{inputs}/*.parquet",
        "--store",
        inputs / "store",
        "--model",
        model,
        "--dtype",
        "float32",
    )
    options = (*there, "--id-column", "id", "--partition", "content")
    assert "2 (0.0 MB), 0 unchanged\n" in run("plan", *options).ok().out
    run("embed", *options).ok()
    assert "2 (0.0 MB), 2 unchanged\n" in run("plan", *options).ok().out
    write_parquet(inputs / "b.parquet", sentences(25, 20), id=pa.array(range(20, 45)))
    assert "2 (0.0 MB), 1 unchanged, read like the others\n" in run("plan", *options).ok().out


def test_a_price_adds_the_cost(run: Run, inputs: Path, model: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(20))
    asked = ("plan", "--input", inputs / "*", "--model", model, "--price-per-hour", "3600")
    assert "at 3600 an hour" in run(*asked).ok().out
    values = json.loads(run(*asked, "--json").ok().out)
    assert values["cost"] == pytest.approx(values["seconds"], abs=1e-5)
