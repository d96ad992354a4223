"""`sentence_beam.embed` with rows that a program holds, and what the store it gives can do.

Covers pipelines/common/library.py.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from helpers.commands import code_process
from helpers.corpora import sentences, write_lines

import sentence_beam as sb
from sentence_beam.transforms.base.errors import OptionError

TEXTS = sentences(6)
IDS = [f"row-{number}" for number in range(6)]
FRAME = pd.DataFrame({"id": IDS, "text": TEXTS, "lang": ["en"] * 6})
SOURCES = {
    "polars": pl.from_pandas(FRAME),
    "generator": (dict(row) for row in FRAME.to_dict("records")),
}


@pytest.fixture
def how(model: Path, store: Path) -> dict[str, Any]:
    return {"store": str(store), "model": str(model), "dtype": "float32"}


@pytest.mark.parametrize("kind", ["polars", "generator"])
def test_rows_of_every_kind_give_the_same_store(kind: str, how: dict[str, Any]) -> None:
    store = sb.embed(SOURCES[kind], id_column="id", keep_columns=("lang",), **how)
    assert store is not None
    ids, vectors = store.numpy()
    assert list(ids) == IDS
    encoder = sb.Encoder.load(how["model"], dtype="float32", device="cpu")
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=2e-5)
    assert list(store.to_pandas()["lang"]) == ["en"] * 6


def test_texts_alone_and_rows_that_changed(how: dict[str, Any]) -> None:
    assert len(sb.embed(TEXTS, **how)) == 6
    again = sb.embed(TEXTS, **how)
    assert again.manifest.data["work"]["carried"] == 6
    changed = sb.embed([*TEXTS[:5], "something else"], **how)
    work = {"embedded": 1, "reused": 5, "duplicates": 0, "carried": 0}
    assert changed.manifest.data["work"] == work


def test_a_store_says_what_it_is_and_gives_rows_vectors_and_hits(how: dict[str, Any]) -> None:
    store = sb.embed(FRAME, id_column="id", precision="float16", **how)
    described = f"6 rows, {store.space.dim} dimensions, run {store.manifest.run}"
    assert repr(store) == f"<Store {how['store']}: {described}>"
    assert store.vectors().dtype == np.float32
    assert store.vectors().shape == (6, store.space.dim)
    picked = store.rows(ids=["row-4", "row-1", "row-4"])
    assert picked["id"].to_pylist() == ["row-4", "row-1"]
    assert store.rows("row-2")["id"].to_pylist() == ["row-2"]
    with pytest.raises(OptionError, match="no row with the id 'row-9'"):
        store.rows(["row-1", "row-9"])
    (hits,) = store.search([TEXTS[3]], k=2)
    assert store.search(TEXTS[3], k=2) == hits, "one text is searched as one text"
    assert hits[0]["id"] == hits[0].id == "row-3"
    assert (hits[1].rank, hits[1].score) == (2, hits[1]["score"])
    assert store.search(ids="row-3", k=1) == store.search(ids=["row-3"], k=1)[0]
    with pytest.raises(OptionError, match="k: 0 is not"):
        store.search("x", k=0)
    with pytest.raises(OptionError, match="fold: 'worst' is not known"):
        store.search("x", fold="worst")


def test_a_store_without_rows_has_arrays_of_none(how: dict[str, Any], inputs: Path) -> None:
    store = sb.embed([], **how)
    assert len(store) == 0
    assert store
    assert store.vectors().shape == (0, store.space.dim)


def test_paths_are_taken_wherever_a_name_is(model: Path, store: Path, inputs: Path) -> None:
    files = [
        write_lines(inputs / name, TEXTS[start : start + 3])
        for start, name in ((0, "a.txt"), (3, "b.txt"))
    ]
    made = sb.embed(files, store=store, model=model, dtype="float32")
    assert list(made.numpy()[0]) == list(sb.open_store(store).numpy()[0])
    assert len(sb.embed(inputs.glob("*.txt"), store=store)) == 6
    assert sb.embed(sb.EmbedOptions(input=files, store=store)).manifest.data["work"]["carried"] == 6
    assert sb.dedup(store, min_score=0.999).rows.num_rows == 6
    assert sb.neighbours(store, of=store, output=inputs / "out", k=1)["queries"] == 6
    assert sb.Encoder.load(model, device="cpu").dim == made.space.dim


def test_texts_that_are_names_of_files_are_refused(how: dict[str, Any], inputs: Path) -> None:
    name = str(write_lines(inputs / "a.txt", TEXTS))
    with pytest.raises(OptionError, match="the text is the name of a file"):
        sb.embed([name], **how)
    assert not Path(how["store"]).exists()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"body": "a"}], {}, "the rows have no column text (text_column); its columns: body"),
        (TEXTS, {"keep_columns": "lang"}, "the rows have no column lang (keep_columns); its columns: text"),
        (TEXTS, {"max_rejects": 2}, "max_rejects: 2 is not a number from 0 to 1"),
        (TEXTS, {"keep_text": "no"}, "keep_text: 'no' is not True or False"),
        (TEXTS, {"beam_flags": "--runner=FnApiRunner"}, "beam_flags: '--runner=FnApiRunner' is no list;"),
        (TEXTS, {"beam_flags": ["--nothing=1"]}, "beam_flags: Beam has no flag --nothing=1;"),
        (TEXTS, {"append": True, "partition": "content"}, "append: partition content has no units of single files;"),
    ],
)  # fmt: skip
def test_errors_name_keywords_and_rows(
    rows: Any, options: dict[str, Any], message: str, how: dict[str, Any]
) -> None:
    with pytest.raises(OptionError) as caught:
        sb.embed(rows, **{**how, **options})
    assert str(caught.value).startswith(message)
    assert tempfile.gettempdir() not in str(caught.value).replace(how["store"], "")


def test_a_gate_is_the_error_of_its_kind(how: dict[str, Any]) -> None:
    said = "1 of 2 rows rejected, more than max_rejects 0 allows"
    with pytest.raises(sb.DataGateError, match=said):
        sb.embed(["", "b"], max_rejects=0, **how)


def test_keywords_are_those_of_the_function() -> None:
    with pytest.raises(TypeError) as caught:
        sb.embed(TEXTS, store="s", max_token=5)  # type: ignore[call-overload]
    assert str(caught.value) == (
        "embed() got an unexpected keyword argument 'max_token'; did you mean max_tokens?"
    )


def test_other_machines_do_not_get_rows_in_memory(how: dict[str, Any]) -> None:
    flags = ["--runner=DataflowRunner", "--project=p", "--region=r", "--temp_location=gs://b/t"]
    flags.append("--sdk_container_image=r/i:t")
    with pytest.raises(OptionError, match="in this process"):
        sb.embed(TEXTS, beam_flags=flags, **how)


def test_logging_is_set_up_by_the_program_after_a_run_too(
    how: dict[str, Any], tmp_path: Path
) -> None:
    code = (
        f"import logging, sentence_beam as sb; sb.embed(['a cat'], **{how}).search('a dog')\n"
        "logging.basicConfig(format='%(message)s', level='INFO'); logging.info('mine')"
    )
    process = code_process(code, tmp_path / "err")
    process.start()
    process.join()
    assert (process.exitcode, (tmp_path / "err").read_text()) == (0, "mine\n")
