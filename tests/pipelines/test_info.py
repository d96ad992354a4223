"""`sentence-beam info` as a person runs it."""

import json
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.snapshots import units_of

from sentence_beam.pipelines.info import (
    describe_columns,
    describe_options,
    describe_rows,
    describe_store,
)
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.entries import RememberedOptions

DEFAULTS = RememberedOptions().to_json()


def test_a_store_is_shown_in_lines_and_whole_as_json(
    embed: Run, run: Run, inputs: Path, store: Path, model: Path
) -> None:
    texts = sentences(30)
    write_parquet(
        inputs / "a.parquet", [*texts, ""], key=[f"k{n}" for n in range(31)], year=list(range(31))
    )
    how = ("--id-column", "key", "--keep-columns", "year", "--index", "Flat")
    embed(inputs / "*", *how, "--quiet").ok()
    manifest = manifest_of(store) or {}
    told = {
        line[:12].strip(): line[12:] for line in run("info", "--store", store).ok().out.splitlines()
    }
    assert told["store"] == str(store)
    assert told["snapshot"].startswith(f"{manifest['run']} of ")
    assert told["model"] == str(model)
    assert told["space"].startswith(manifest["space"]["id"][:16])
    assert told["rows"] == "30, 1 of 31 read rejected"
    assert told["columns"].startswith("text (string), year (int64); id, ")
    assert "--id-column key --keep-columns year" in told["options"]
    assert told["bytes"].startswith(
        f"{sum(unit['bytes'] for unit in units_of(store)) / 1000:.1f} kB in 1 shard, "
    )
    assert told["input"] == f"{inputs}/*"
    assert told["index"].startswith("Flat, cosine, 2 segments; recall@10 1.0000 (")
    assert told["last run"].startswith(f"{manifest['run']}: embed committed, begun ")
    assert told["last run"].endswith("; 30 added, 0 changed, 0 deleted")
    found = json.loads(run("info", "--store", store, "--json").ok().out)
    assert found.pop("command") == "info"
    assert found == open_store(str(store)).info()
    assert found["index"]["factory"] == "Flat"
    assert found["bytes"]["index"] > 0
    run("info", "--store", store / "nowhere").failed(2, "holds no store")
    (store / "manifest.json").write_text("{")
    run("info", "--store", store).failed(1, f"{store}/manifest.json")


def test_prefixes_name_snapshots_runs_and_spaces(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    for number in range(2):
        write_parquet(inputs / f"{number}.parquet", sentences(3, 3 * number))
        embed(inputs / "*", "--quiet").ok()
    current = manifest_of(store) or {}
    first, second = current["previous"], current["run"]
    for name, wanted in ((first[:-2], first), ("-1", first), ("latest", second), (second, second)):
        assert (
            json.loads(run("info", "--store", store, "--snapshot", name, "--json").ok().out)[
                "snapshot"
            ]
            == wanted
        )
        assert f"in run {wanted}" in run("rejects", "--store", store, "--snapshot", name).ok().out
    run("info", "--store", store, "--snapshot", "2").failed(
        2, "2 begins the names of 2 snapshots", "say more"
    )
    run("rejects", "--store", store, "--snapshot", "2").failed(
        2, "2 begins the names of 2 runs", first, second
    )


@pytest.mark.parametrize(
    ("changes", "partition", "line"),
    [
        ({}, "file", "defaults"),
        ({"id_column": "key", "keep_columns": ["a", "b"], "keep_types": {"b": "int"}}, "file", "--id-column key --keep-columns a,b:int"),
        ({"keep_text": False, "max_rejects": 1.0, "limit": None}, "content", "--partition content --no-keep-text --max-rejects 1"),
        ({"text_template": "{title}\\n{body}"}, "file", "--text-template '{title}\\n{body}'"),
        ({"model": "other", "pooler": "cls"}, "file", "defaults"),
    ],
)  # fmt: skip
def test_remembered_options_are_shown_as_flags(changes: dict, partition: str, line: str) -> None:
    assert describe_options({**DEFAULTS, **changes}, partition) == line


def test_counts_of_one_are_singular() -> None:
    assert describe_rows({"read": 1, "written": 1, "rejected": 0, "pieces": 1}) == "1 in 1 piece"
    assert describe_rows({"read": 3000, "written": 2998, "rejected": 2, "pieces": 9000}) == (
        "2,998 in 9,000 pieces, 2 of 3,000 read rejected"
    )
    assert describe_columns(None) == "unknown, no shard is there to tell"


def test_damage_has_a_line_of_its_own(embed: Run, run: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(3))
    embed(inputs / "*", "--quiet").ok()
    opened = open_store(str(store))
    info = {**opened.info(), "faults": ["s/embeddings/x.parquet cannot be read"]}
    assert "damaged     s/embeddings/x.parquet cannot be read" in describe_store(
        info, opened.manifest
    )
