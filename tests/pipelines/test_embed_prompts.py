"""Prompts of a model's folder: rows and queries get those of sentence-transformers.

Covers transforms/report/snapshot_section.py.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, vectors_of, write_parquet
from helpers.prompted import GEMMA, reference, save_prompted, set_prompts
from helpers.tiny_models import HIDDEN
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules as st

TEXTS = sentences(5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model without prompts."""
    return save_prompted(tmp_path / "own", {})


def rows_of(store: Path) -> np.ndarray:
    places = {int(name.partition("#")[2]): vector for name, vector in vectors_of(store).items()}
    return np.array([places[place] for place in sorted(places)])


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.fixture
def night(run: Run, folder: Path, inputs: Path, store: Path) -> Any:
    """A run over five texts with these options; gives what it printed."""
    path = write_parquet(inputs / "a.parquet", TEXTS)

    def call(*options: object) -> str:
        options = ("--dtype", "float32", *options)
        if not store.exists():
            options = ("--model", folder, *options)
        return run("embed", "--input", path, "--store", store, *options).ok().out

    return call


def scores(run: Run, store: Path, tmp_path: Path) -> list[float]:
    output = tmp_path / "hits.jsonl"
    assert run("search", "--store", store, "--query", "horse", "--output", output).status == 0
    return [json.loads(line)["score"] for line in output.read_text().splitlines()]


def check_against(model: SentenceTransformer, run: Run, store: Path, tmp_path: Path) -> None:
    """Rows are encoded as the model's documents and a query as its queries."""
    documents = model.encode_document(TEXTS)
    same(rows_of(store), documents)
    cosines = model.similarity(model.encode_query(["horse"]), documents)[0]
    same(scores(run, store, tmp_path), sorted(cosines.tolist(), reverse=True))


def test_rows_and_queries_get_the_prompts_of_encode_document_and_encode_query(
    run: Run, night: Any, folder: Path, inputs: Path, store: Path, tmp_path: Path
) -> None:
    set_prompts(folder, GEMMA)
    told = "prompts     rows 'a cat ', queries 'the red dog '"
    assert told in night().splitlines()
    check_against(reference(folder), run, store, tmp_path)
    info = run("info", "--store", store).ok().out
    assert told in info.splitlines()
    assert "-prompt" not in info
    planned = run("plan", "--input", inputs / "*", "--model", folder).ok().out
    assert told in planned.splitlines()
    space = manifest_of(store)["space"]
    assert space["prompt"] == "a cat "
    night("--query-prompt", "the big ")
    assert manifest_of(store)["space"] == space


def test_a_router_with_prompts(
    run: Run, night: Any, folder: Path, store: Path, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    routes = {
        route: [st.Transformer(str(folder)), st.Pooling(HIDDEN, mode, include_prompt=False)]
        for route, mode in (("query", "max"), ("document", "mean"))
    }
    router = Router(routes, default_route="document")
    model = SentenceTransformer(modules=[router], device="cpu", prompts=GEMMA)
    model.save(str(tmp_path / "routed"))
    night("--model", tmp_path / "routed")
    check_against(reference(tmp_path / "routed"), run, store, tmp_path)


@pytest.mark.parametrize(
    ("options", "prompt", "query"),
    [
        (("--prompt-name", "STS", "--query-prompt", ""), "the man ", ""),
        (("--prompt", "", "--query-prompt", "the big "), "", "the big "),
    ],
)
def test_given_prompts_win_and_stay(
    night: Any, run: Run, folder: Path, store: Path, tmp_path: Path, options: Any, prompt: str,
    query: str,
) -> None:  # fmt: skip
    set_prompts(folder, GEMMA)
    night(*options)
    model = reference(folder)
    documents = model.encode(TEXTS, prompt=prompt)
    cosines = model.similarity(model.encode(["horse"], prompt=query), documents)[0]
    for _ in range(2):
        same(rows_of(store), documents)
        same(scores(run, store, tmp_path), sorted(cosines.tolist(), reverse=True))
        night()
    assert manifest_of(store)["work"]["carried"] == len(TEXTS)


def test_a_prompt_by_another_name_is_not_used_and_the_summary_says_so(
    night: Any, folder: Path
) -> None:
    set_prompts(folder, {"query": "the red dog ", "passage": "a cat "}, "passage")
    note = "the model's prompt 'passage' is not used: say --prompt-name passage"
    assert note in night()
    assert note not in night("--prompt", "")


@pytest.mark.parametrize("given", [False, True])
def test_another_model_brings_its_prompts_but_given_ones_stay(
    night: Any, folder: Path, store: Path, tmp_path: Path, given: bool
) -> None:
    night(*(("--prompt", "the big ") if given else ()))
    other = folder.rename(tmp_path / "other")
    set_prompts(other, GEMMA)
    told = night("--model", other, "--reembed")
    expected = "the big " if given else "a cat "
    assert f"rows {expected!r}, queries 'the red dog '" in told
    same(rows_of(store), reference(other).encode(TEXTS, prompt=expected))


def test_prompts_that_a_folder_gets_later_are_another_space(
    night: Any, run: Run, folder: Path, store: Path, inputs: Path
) -> None:
    assert "\nprompts " not in night()
    set_prompts(folder, GEMMA)
    run("embed", "--input", inputs / "*", "--store", store).failed(2, "prompt", "--reembed")
    night("--reembed")
    same(rows_of(store), reference(folder).encode_document(TEXTS))
