"""Rows in, rows with vectors out: whatever their shape, their order and how many are held
together.

Covers transforms/steps/embed/row_shapes.py.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.examples import examples
from helpers.tiny_models import WORDS, save_tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Machine, Recipe
from sentence_beam.transforms.steps.embed.element_rows import RowEmbedder, RowsJob
from sentence_beam.transforms.store import open_store

DOCUMENT = "a man is riding. the dog was eating. a woman in the park. an apple is red."


class Named(SimpleNamespace):
    """A named row."""

    def _asdict(self) -> dict[str, Any]:
        return dict(vars(self))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model("bert", tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def encoder(model: str) -> Encoder:
    return Encoder.load(model, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def job(model: str) -> RowsJob:
    return job_of(model)


def job_of(model: str, prefix: str = "", **said: Any) -> RowsJob:
    recipe = Recipe.from_options({"model": model, "dtype": "float32", **said})
    return RowsJob.from_recipe(recipe, Machine("cpu"), "text", prefix)


def embed(
    job: RowsJob,
    elements: Iterable[Any],
    window_tokens: int = 10_000,
    encoder: Encoder | None = None,
) -> tuple[list[Any], list[Any]]:
    """What comes of one bundle: embedded and rejected elements."""
    encoder = encoder or job.load()
    rows = RowEmbedder(job, lambda: encoder, Named, lambda counts, figures: None, window_tokens)
    results = [
        result for place, element in enumerate(elements) for result in rows.add(element, place)
    ]
    results += rows.finish()
    assert [result.place for result in results] == sorted(result.place for result in results)
    embedded = [result.value for result in results if not result.rejected]
    rejected = [result.value for result in results if result.rejected]
    return embedded, rejected


def test_all_four_shapes_have_the_encoders_vectors(model: str, encoder: Encoder) -> None:
    job, texts = job_of(model), ["a man is playing", "dog", "the red apple"]
    expected = encoder.encode(texts)
    dicts, _ = embed(job, [{"id": n, "text": text} for n, text in enumerate(texts)])
    named, _ = embed(job, [Named(id=n, text=text) for n, text in enumerate(texts)])
    pairs, _ = embed(job, list(enumerate(texts)))
    (batch,), _ = embed(job, [pa.record_batch({"id": [0, 1, 2], "text": texts})])
    vectors = (
        [row["embedding"] for row in dicts],
        [row.embedding for row in named],
        [vector for _, vector in pairs],
    )
    for found in (*vectors, batch["embedding"].to_pylist()):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert (
        [row["id"] for row in dicts]
        == [row.id for row in named]
        == [name for name, _ in pairs]
        == [0, 1, 2]
    )
    assert dicts[0]["embedding"].dtype == np.float32
    assert (dicts[1]["tokens"], dicts[1]["truncated"]) == (3, False)
    assert batch.schema.field("embedding").type == pa.list_(pa.float32(), encoder.dim)
    assert batch["tokens"].to_pylist() == [row["tokens"] for row in dicts]


@settings(max_examples=examples(8, few=3))
@given(
    rows=st.lists(
        st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=12).map(" ".join), max_size=12
    ),
    order=st.randoms(use_true_random=False),
    window=st.sampled_from([1, 20, 10_000]),
)
def test_neither_order_nor_what_is_held_together_changes_a_vector(
    job: RowsJob, encoder: Encoder, rows: list[str], order: Any, window: int
) -> None:
    elements = [{"n": n, "text": text} for n, text in enumerate(rows)]
    order.shuffle(elements)
    embedded, rejected = embed(job, elements, window, encoder)
    assert not rejected
    assert [row["n"] for row in embedded] == [row["n"] for row in elements]
    if rows:
        expected = encoder.encode([row["text"] for row in embedded])
        np.testing.assert_allclose(
            [row["embedding"] for row in embedded], expected, rtol=0, atol=2e-5
        )


def test_rows_without_a_text_are_rejected_with_the_reason(model: str) -> None:
    bad = [None, " \n", 5, "a\ud800"]
    given_ = [
        {"id": "ok", "text": "dog"},
        {"id": "other"},
        *({"id": n, "text": text} for n, text in enumerate(bad)),
    ]
    embedded, rejected = embed(job_of(model), given_)
    assert [row["id"] for row in embedded] == ["ok"]
    assert [(row["id"], row["reason"]) for row in rejected] == [
        ("other", "no field 'text'"),
        (0, "null text"),
        (1, "empty text"),
        (2, "text is not a string"),
        (3, "not UTF-8"),
    ]
    _, pairs = embed(job_of(model), [("a", None), ("b", "dog")])
    assert pairs == [("a", None, "null text")]
    batch = pa.record_batch({"id": [1, 2, 3], "text": ["dog", None, ""]})
    (good,), (left,) = embed(job_of(model), [batch])
    assert good["id"].to_pylist() == [1]
    assert left.to_pylist() == [
        {"id": 2, "text": None, "reason": "null text"},
        {"id": 3, "text": "", "reason": "empty text"},
    ]


def test_vectors_that_nobody_can_use_are_rejected_with_the_reason(tmp_path: Path) -> None:
    folder = save_tiny_model("bert", tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    last = max(name for name in weights if name.endswith("output.LayerNorm.weight"))
    for name in (last, last.replace(".weight", ".bias")):
        weights[name].zero_()
    dog = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["dog"]
    weights["embeddings.word_embeddings.weight"][dog] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    embedded, rejected = embed(job_of(str(folder)), [("a", "a cat"), ("b", "a dog")])
    assert embedded == []
    assert rejected == [("a", "a cat", "zero vector"), ("b", "a dog", "non-finite vector")]


def test_only_embed_quantises_a_model(model: str) -> None:
    for load in (lambda: job_of(model, dtype="int8"), lambda: Encoder.load(model, dtype="int8")):
        with pytest.raises(OptionError, match="embed quantises a model for one store"):
            load()


def test_a_large_batch_comes_back_in_parts_and_an_empty_one_not_at_all(model: str) -> None:
    batch = pa.record_batch({"n": list(range(40)), "text": ["a man is playing the guitar"] * 40})
    parts, _ = embed(job_of(model), [batch, batch.slice(0, 0)], window_tokens=100)
    assert len(parts) > 1
    assert [n for part in parts for n in part["n"].to_pylist()] == list(range(40))


@pytest.mark.parametrize(
    "spec", ["sentences", "budget:tokens=9,overlap=3", "late:tokens=8", "budget:combine=mean"]
)
def test_documents_become_their_pieces(model: str, spec: str) -> None:
    job = job_of(model, chunks=spec)
    embedded, rejected = embed(
        job, [{"id": 1, "text": DOCUMENT}, {"id": 2, "text": ""}, {"id": 3, "text": "dog"}]
    )
    assert [row["id"] for row in rejected] == [2]
    if spec.endswith("mean"):
        assert [(row["id"], row["text"]) for row in embedded] == [(1, DOCUMENT), (3, "dog")]
        return
    pieces = [row for row in embedded if row["id"] == 1]
    assert len(pieces) > 1
    for number, row in enumerate(pieces):
        assert (row["piece"], row["pieces"], row["headings"]) == (number, len(pieces), "")
        assert row["text"] == DOCUMENT[row["start"] : row["end"]]
    names, _ = zip(*embed(job, [("k", DOCUMENT)])[0], strict=True)
    assert names == tuple(("k", number) for number in range(len(pieces)))
    (batch,), _ = embed(job, [pa.table({"id": [1], "text": [DOCUMENT]})])
    assert batch["text"].to_pylist() == [row["text"] for row in pieces]
    np.testing.assert_allclose(
        batch["embedding"].to_pylist(), [row["embedding"] for row in pieces], rtol=0, atol=2e-5
    )


def test_what_stands_before_pieces_is_what_embed_puts_there(model: str, tmp_path: Path) -> None:
    pages = [
        "# apple\n\na man is riding. the dog was eating.\n\n## red\n\na woman in the park.",
        "a dog. a cat.",
    ]
    rows = [
        {"id": str(n), "title": title, "year": n, "text": pages[n]}
        for n, title in enumerate(["One", None])
    ]
    spec, prefix = "budget:tokens=8,by=markdown", "{title} {year}\\n{headings}: "
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    options = [
        "--chunks",
        spec,
        "--chunk-prefix",
        prefix,
        "--id-column",
        "id",
        "--dtype",
        "float32",
        "--model",
        model,
    ]
    assert (
        main(
            [
                "embed",
                "--input",
                str(tmp_path / "a.parquet"),
                "--store",
                str(tmp_path / "store"),
                *options,
            ]
        )
        == 0
    )
    wanted = open_store(str(tmp_path / "store")).dataset().to_table().to_pylist()
    assert len(wanted) > 3
    job = job_of(model, prefix, chunks=spec)
    dicts, _ = embed(job, rows)
    named, _ = embed(job, [Named(**row) for row in rows])
    batches, _ = embed(
        job, [pa.RecordBatch.from_pylist(rows), pa.Table.from_pylist(rows).slice(0, 0)]
    )
    lacking, _ = embed(
        job, [{name: value for name, value in row.items() if value is not None} for row in rows]
    )
    for found in (
        dicts,
        [vars(row) for row in named],
        [row for batch in batches for row in batch.to_pylist()],
        lacking,
    ):
        for name in ("id", "piece", "pieces", "start", "end", "text", "tokens"):
            assert [row[name] for row in found] == [row[name] for row in wanted], name
        vectors = [row["embedding"] for row in wanted]
        np.testing.assert_allclose([row["embedding"] for row in found], vectors, rtol=0, atol=2e-5)
    assert dicts[-1]["headings"] == ""
    assert {row["headings"] for row in dicts[:-1]} >= {"apple", "apple > red"}
    mean, _ = embed(job_of(model, prefix, chunks=f"{spec},combine=mean"), rows)
    assert [row["text"] for row in mean] == pages


def test_a_prefix_without_room_or_that_is_no_text_costs_its_document_alone(model: str) -> None:
    job = job_of(model, "{title}: ", chunks="sentences")
    long = "a man is playing the guitar " * 60
    rows = [
        {"id": n, "title": title, "text": "a dog. a cat."}
        for n, title in enumerate(["apple", long, "a\ud800"])
    ]
    embedded, rejected = embed(job, rows)
    assert [(row["id"], row["piece"]) for row in embedded] == [(0, 0), (0, 1)]
    assert [row["id"] for row in rejected] == [1, 2]
    assert "leaves no token for it" in rejected[0]["reason"]
    assert rejected[1]["reason"] == "not UTF-8"
    raw = pa.array([b"apple", b"caf\xe9"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    for columns in (
        {"title": texts, "text": ["a dog."] * 2},
        {"title": raw, "text": ["a dog."] * 2},
        {"title": ["", ""], "text": texts},
        {"title": ["", ""], "text": raw},
    ):
        (good,), (left,) = embed(job, [pa.record_batch(columns)])
        assert (good.num_rows, left["reason"].to_pylist()) == (1, ["not UTF-8"])


def test_texts_of_bytes_views_and_categories(model: str) -> None:
    views = pa.record_batch(
        {
            "text": pa.array(["a dog", None], pa.string_view()),
            "odd": pa.array([["x"], []], pa.list_view(pa.string_view())),
        }
    )
    categories = pa.table({"text": pa.array(["a dog", "a cat"]).dictionary_encode()})
    raw = pa.table({"text": [b"a dog", b"caf\xe9"]})
    for rows, lacking in ((views, ["null text"]), (categories, []), (raw, ["not UTF-8"])):
        embedded, rejected = embed(job_of(model), [rows])
        assert sum(len(one) for one in embedded) == 2 - len(lacking)
        assert [reason for one in rejected for reason in one["reason"].to_pylist()] == lacking
    (good,), (bad,) = embed(job_of(model), [{"text": b"a dog"}, {"text": b"caf\xe9"}])
    assert (good["text"], bad["reason"]) == (b"a dog", "not UTF-8")
    assert np.array_equal(
        good["embedding"], embed(job_of(model), [{"text": "a dog"}])[0][0]["embedding"]
    )


@pytest.mark.parametrize(
    ("prefix", "chunks", "row", "said"),
    [
        ("{title}", "none", None, "chunk_prefix stands before pieces of documents"),
        ("{title}", "late", None, "know what stands around them"),
        ("{", "sentences", None, "brace"),
        ("{title}", "sentences", ("a", "a dog."), "no field 'title', being pairs of id and text"),
        ("{title}", "sentences", Named(id=1, text="a dog."), "no field 'title', but id, text"),
        ("{title}", "sentences", pa.table({"text": ["a dog."]}), "no field 'title', but text"),
    ],
)
def test_a_prefix_that_does_not_work_is_refused(
    model: str, prefix: str, chunks: str, row: Any, said: str
) -> None:
    with pytest.raises(OptionError) as error:
        embed(job_of(model, prefix, chunks=chunks), [row])
    assert said in str(error.value)


def test_a_field_that_would_be_replaced_is_refused(model: str) -> None:
    for row in (
        {"text": "dog", "embedding": [1]},
        Named(text="dog", reason=""),
        pa.table({"text": [""], "norm": [1]}),
    ):
        with pytest.raises(OptionError, match="already, which EmbedRows would replace; rename it"):
            embed(job_of(model), [row])


@pytest.mark.parametrize("key", [1, None, b"text", ("a", 1), True, 1.5])
def test_a_key_that_is_no_string_is_named(model: str, key: Any) -> None:
    with pytest.raises(OptionError) as refused:
        embed(job_of(model), [{"text": "dog"}, {"text": "horse", key: "x"}])
    kind = type(key).__name__
    assert f"a row has the key {key!r} of type {kind}" in str(refused.value)


def test_what_is_no_row_is_refused(model: str) -> None:
    with pytest.raises(OptionError, match="an element of type int is no row; give dicts"):
        embed(job_of(model), [5])
    with pytest.raises(
        OptionError, match="an Arrow batch has no column 'text', but body; say text='...'"
    ):
        embed(job_of(model), [pa.table({"body": ["dog"]})])


def test_another_model_on_a_worker_is_refused(model: str, tmp_path: Path) -> None:
    other = save_tiny_model("bert", tmp_path / "other", initializer_range=0.2)
    made = job_of(model)
    job = RowsJob(Recipe(str(other), dtype="float32"), made.machine, made.text, made.space)
    with pytest.raises(SpaceMismatchError, match=r"another space .*\(weights differ\)"):
        embed(job, [{"text": "dog"}])


def test_equal_texts_are_embedded_once(model: str) -> None:
    job, counted = job_of(model), []
    rows = RowEmbedder(
        job, job.load, Named, lambda counts, figures: counted.append((counts, figures))
    )
    for n in range(6):
        assert not list(rows.add({"text": "dog" if n % 2 else "a cat"}, n))
    vectors = [result.value["embedding"] for result in rows.finish()]
    ((counts, figures),) = counted
    assert (counts["rows"], counts["embedded"], counts["duplicates"], counts["real"]) == (
        6,
        2,
        4,
        7,
    )
    assert {"tokenise_ms", "forward_ms", "load_ms", "unit_rows", "unit_tokens"} <= set(figures)
    assert not np.shares_memory(vectors[0], vectors[2])
