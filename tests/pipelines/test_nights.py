"""Any sequence of nights ends in the rows and vectors of one run from nothing on the last state."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, manifest_of, rows_of, sentences, vectors_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = ["a.parquet", "b.parquet", "deep/c.parquet", "d.jsonl.gz"]
POOL = sentences(30)

rows = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(POOL)), max_size=12)
contents = st.dictionaries(st.sampled_from(NAMES), rows, min_size=1)
edits = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), rows),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
    *(
        st.tuples(st.just(what), st.sampled_from(NAMES), st.sampled_from(NAMES))
        for what in ("rename", "copy", "swap", "append", "split")
    ),
)
nights = st.lists(st.lists(edits, max_size=3), min_size=1, max_size=3)
Corpus = dict[str, list[tuple[int, str]]]


def edited(corpus: Corpus, edit: tuple[str, str, Any]) -> Corpus:
    """The corpus after one edit; one that cannot be made changes nothing."""
    what, name, other = edit
    after = dict(corpus)
    if what == "write":
        after[name] = other
    elif name in after and what == "delete":
        del after[name]
    elif name in after and what == "rename":
        after[other] = after.pop(name)
    elif name in after and what == "copy":
        after[other] = after[name]
    elif name in after and other in after and what == "swap":
        after[name], after[other] = after[other], after[name]
    elif name in after and name != other and what == "append":
        after[other] = [*after.get(other, []), *after.pop(name)]
    elif name in after and name != other and what == "split":
        half = len(after[name]) // 2
        after[name], after[other] = after[name][:half], after[name][half:]
    return after


def write(folder: Path, corpus: Corpus) -> None:
    """Make the folder hold the corpus; a file that holds what it should is left alone."""
    import gzip
    import json

    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if str(path.relative_to(folder)) not in corpus:
            path.unlink()
    for name, found in corpus.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".gz":
            lines = "".join(json.dumps({"id": f"k{i}", "text": text}) + "\n" for i, text in found)
            data = gzip.compress(lines.encode(), mtime=0)
        else:
            sink = pa.BufferOutputStream()
            columns = {"id": [f"k{i}" for i, _ in found], "text": [text for _, text in found]}
            schema = pa.schema([("id", pa.string()), ("text", pa.string())])
            pq.write_table(pa.table(columns, schema=schema), sink, row_group_size=4)
            data = sink.getvalue().to_pybytes()
        if not path.is_file() or path.read_bytes() != data:
            path.write_bytes(data)


@pytest.mark.parametrize("id_column", ["id", ""])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=contents, then=nights)
def test_nights_end_where_one_run_would(run: Run, model: Path, id_column: str, first: Corpus, then: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inputs, store, fresh = (Path(folder) / name for name in ("in", "store", "fresh"))
        inputs.mkdir()
        options = ("--model", model, "--dtype", "float32", "--unit-tokens", 40, "--id-column", id_column)
        corpus = first
        for night in [[], *then]:
            for edit in night:
                corpus = edited(corpus, edit)
            if not corpus:
                return
            write(inputs, corpus)
            run("embed", "--input", inputs / "**", "--output", store, *options).ok()
            total = sum(map(len, corpus.values()))
            manifest = check_ledger(store, total)
            paths = [unit["path"] for unit in manifest["shards"] if unit["path"]]
            assert len(set(paths)) == len(paths)
        run("embed", "--input", inputs / "**", "--output", fresh, *options).ok()
        assert_same(store, fresh)


def assert_same(store: Path, fresh: Path) -> None:
    """The same rows in the same order, and vectors within the bound."""
    mine, theirs = ([{**row, "norm": 0} for row in rows_of(place)] for place in (store, fresh))
    assert mine == theirs
    units = [[(u["unit"], u["file"], u["rows"]) for u in manifest_of(place)["shards"]] for place in (store, fresh)]
    assert units[0] == units[1]
    if not mine:
        return
    a, b = (np.array(list(vectors_of(place).values())) for place in (store, fresh))
    assert np.abs(a - b).max() <= 2e-5 * np.abs(b).max()
