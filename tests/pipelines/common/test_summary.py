"""What a person sees of a run: a line that moves on a terminal, the closing summary, Beam's
counters.
"""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.snapshots import units_of

from sentence_beam.pipelines.common.summary import warn_of_late
from sentence_beam.pipelines.embed import build, parser
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(cached_beam_options: None) -> None:
    """Beam's own runner: the figures that it counts are part of what is tested."""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Forty texts, ten of them twice, one longer than the model takes, and a rejected row; ids of
    three rows are one.
    """
    texts = [*sentences(40), *sentences(10), "dog " * 100, " "]
    ids = ["same", "same", "same", *(str(n) for n in range(3, len(texts)))]
    return write_parquet(inputs / "a.parquet", texts, id=ids)


OPTIONS = ("--id-column", "id", "--max-rejects", 0.1)


def test_a_terminal_sees_the_run_move_and_the_line_go(
    embed: Run, glob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sentence_beam.pipelines.common.progress.SECONDS", 0.005)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert embed(glob, *OPTIONS).status == 0
    shown = terminal.getvalue().split("\r")
    assert any(
        line.startswith("embedding: ") and line.rstrip().endswith(" tokens/s, 41 rows]")
        for line in shown
    ), shown
    assert shown[-2:] == [" " * 79, ""]


def test_the_summary_says_what_the_manifest_does(embed: Run, glob: Path, store: Path) -> None:
    said = lines(embed(glob, *OPTIONS, "--index", "auto").ok().out)
    manifest = manifest_of(store)
    assert manifest["tokens"]["lost"] == 100 + 2 - 48
    assert said["rows"] == "51 written of 52 read, 1 rejected"
    assert said["work"] == "41 embedded, 0 reused, 10 duplicates, 0 carried"
    assert "rows/s, " in said["speed"]
    assert said["speed"].endswith(" tokens/s, padding 0.0 %")
    assert said["truncated"] == "1 row lost 54 tokens (limit 48)"
    assert said["ids"].startswith("2 rows ")
    assert said["index"].startswith("Flat, ")
    assert said["store"] == f"{store} (snapshot {manifest['run']})"
    assert said["rejects"] == f"{store}/rejects"
    assert said["manifest"] == f"{store}/manifest.json"
    write_parquet(glob, [*sentences(40), *sentences(5, 100)], id=[str(n) for n in range(45)])
    assert lines(embed(glob).ok().out)["work"] == "5 embedded, 40 reused, 0 duplicates, 0 carried"


def lines(out: str) -> dict[str, str]:
    """The summary, by the first word of each line."""
    return {line[:11].strip(): line[12:] for line in out.splitlines()}


def test_beam_counts_what_the_ledger_counts(run: Run, glob: Path, store: Path, model: Path) -> None:
    named = [
        "--input",
        str(glob),
        "--store",
        str(store),
        "--model",
        str(model),
        "--id-column",
        "id",
    ]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build(
        pipeline,
        resolve_run(
            EmbedOptions(**vars(parser().parse_args([*named, "--max-rejects", "0.1"]))),
            None,
            local=True,
        ),
    )
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("sentence_beam"))[
        "counters"
    ]
    counters = {counter.key.metric.name: counter.committed for counter in found}
    manifest = manifest_of(store)
    expected = {
        "files": 1,
        "units": 1,
        "rows": 51,
        "rejected": 1,
        "fallbacks": 0,
        "oom_splits": 0,
        "truncated": 1,
    }
    expected |= {name: manifest["work"][name] for name in ("embedded", "reused", "duplicates")}
    expected |= {name: manifest["tokens"][name] for name in ("real", "padded", "lost")}
    assert counters == {
        **expected,
        "tokens": sum(unit["tokens"] for unit in units_of(store, manifest)),
    }


@pytest.mark.parametrize(
    ("chunks", "note"),
    [
        ("late:tokens=30,window=20,overlap=0", "windows of 20 tokens hold no more than a piece"),
        ("late:tokens=60", "windows of 48 tokens hold no more than a piece"),
        ("late:tokens=12,window=24", None),
        ("budget:tokens=60", None),
    ],
)
def test_windows_of_late_chunks_that_hold_one_piece_are_noted(
    chunks: str, note: str | None
) -> None:
    job, space = SimpleNamespace(chunks=ChunksSpec.parse(chunks)), SimpleNamespace(max_tokens=48)
    resolved: Any = SimpleNamespace(job=job, space=space)
    assert (warn_of_late(resolved) or "").partition(",")[0] == (note or "")
