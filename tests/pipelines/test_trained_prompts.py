"""A model that was trained with prompts and gets none: one line with the options that give them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, vectors_of, write_lines
from helpers.prompted import reference, save_prompted
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.serve import server

SENTENCE = "Represent this sentence for searching relevant passages: "
E5_ADVICE = (
    "prompts     rows none, queries none; the card of E5 models (the name e5-base-v2) asks for"
    " 'passage: ' before rows and 'query: ' before queries: say --prompt 'passage: '"
    " --query-prompt 'query: ', or --prompt '' if none is wanted"
)


@pytest.fixture
def e5(tmp_path: Path) -> Path:
    """A model with E5's name; sentence-transformers registers two empty prompts."""
    return save_prompted(tmp_path / "e5-base-v2", {"query": "", "document": ""})


@pytest.fixture
def bge(tmp_path: Path) -> Path:
    """A model in transformers' layout under a name of its own, with the card of a BGE model."""
    folder = save_tiny_model("bert", tmp_path / "ours")
    (folder / "README.md").write_text(f"Add `{SENTENCE}` to queries.")
    return folder


@pytest.fixture
def made(run: Run, inputs: Path, store: Path) -> Any:
    """`embed` with a model and further options; returns what it printed."""
    path = write_lines(inputs / "a.txt", sentences(5))

    def embed(model: Path, *options: object) -> str:
        command = ("embed", "--input", path, "--store", store, "--model", model)
        return run(*command, "--dtype", "float32", *options).ok().out

    return embed


def search(run: Run, store: Path, *options: object) -> str:
    """Return the notes of a search."""
    return run("search", "--store", store, "--query", "the dog", *options).err


def test_embed_and_plan_say_it_and_add_nothing(
    run: Run, made: Any, inputs: Path, store: Path, e5: Path
) -> None:
    planned = run("plan", "--input", inputs / "*", "--model", e5).ok().out
    assert E5_ADVICE in planned.splitlines()
    assert E5_ADVICE in made(e5).splitlines()
    assert E5_ADVICE in made(e5).splitlines(), "it is said every night"
    expected = reference(e5).encode(sentences(5))
    np.testing.assert_allclose(list(vectors_of(store).values()), expected, rtol=0, atol=2e-5)


def test_the_options_that_it_names_end_it(run: Run, made: Any, store: Path, e5: Path) -> None:
    prompted = made(e5, "--prompt", "passage: ", "--query-prompt", "query: ")
    assert "prompts     rows 'passage: ', queries 'query: '" in prompted.splitlines()
    assert search(run, store) == ""
    assert "asks for" not in made(e5)


def test_an_empty_prompt_says_that_none_is_wanted(
    run: Run, made: Any, store: Path, e5: Path
) -> None:
    assert "\nprompts " not in made(e5, "--prompt", "")
    assert search(run, store) == ""
    assert "\nprompts " not in made(e5), "the store remembers it"


def test_an_answer_later_embeds_nothing_again(made: Any, store: Path, e5: Path) -> None:
    made(e5)
    assert "5 carried" in made(e5, "--prompt", "")
    assert manifest_of(store)["space"]["prompt"] == ""


def test_rows_with_a_prompt_need_one_for_queries(
    run: Run, made: Any, store: Path, e5: Path
) -> None:
    said = made(e5, "--prompt", "passage: ")
    assert (
        "asks for 'query: ' before queries: say --query-prompt 'query: ', or --query-prompt ''"
        in said
    )
    assert "say --query-prompt 'query: ' here" in search(run, store)


def test_a_search_says_it_until_it_is_answered(run: Run, made: Any, store: Path, bge: Path) -> None:
    assert f"before queries: say --query-prompt '{SENTENCE}', or --prompt ''" in made(bge)
    note = (
        f"note: the model's card (README.md) asks for '{SENTENCE}' before queries, which get none;"
        f" say --query-prompt '{SENTENCE}' here, or in embed, which remembers it, or"
        " --query-prompt '' if none is wanted\n"
    )
    assert search(run, store) == note
    assert search(run, store, "--query-prompt", "") == ""
    assert search(run, store, "--query-prompt", SENTENCE) == ""
    assert run("search", "--store", store, "--id", "a.txt@0").ok()
    made(bge, "--query-prompt", "")
    assert search(run, store) == ""


def test_serve_says_it(
    run: Run, made: Any, store: Path, bge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "serve", lambda *_: None)
    made(bge)
    serve = ("serve", "--store", store, "--port", 0)
    assert f"note: the model's card (README.md) asks for '{SENTENCE}'" in run(*serve).err
    assert run(*serve, "--query-prompt", "").err == ""


def test_evaluate_says_it_for_each_kind_of_task(run: Run, tmp_path: Path, e5: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("score\tsentence1\tsentence2\n5\ta dog\ta cat\n1\tthe man\ta horse\n")
    (tmp_path / "qrels").mkdir()
    texts = {"corpus": sentences(3), "queries": ["the dog"]}
    for name, rows in texts.items():
        lines = [json.dumps({"_id": f"{name[0]}{n}", "text": row}) for n, row in enumerate(rows)]
        write_lines(tmp_path / f"{name}.jsonl", lines)
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tc1\t1\n")
    sts, beir = ("--task", f"s={pairs}"), ("--task", f"retrieval:r={tmp_path}")

    def notes(*options: object) -> list[str]:
        said = json.loads(run("evaluate", "--model", e5, *options, "--json").ok().out)
        return [note for note in said["notes"] if "asks for" in note]

    of_retrieval = (
        "the card of E5 models (the name e5-base-v2) asks for 'passage: ' before documents and"
        " 'query: ' before queries: say --prompt 'passage: ' --query-prompt 'query: ', or"
        " --prompt '' if none is wanted"
    )
    [of_pairs] = notes(*sts)
    assert of_pairs.endswith("say --prompt 'query: ', or --prompt '' if none is wanted")
    assert notes(*beir) == [of_retrieval]
    assert notes(*sts, *beir) == [of_retrieval, of_pairs]
    assert notes(*sts, *beir, "--prompt", "") == []
    assert notes(*sts, "--prompt", "query: ") == []
    assert notes(*beir, "--prompt", "passage: ", "--query-prompt", "query: ") == []


def test_the_encoder_warns_its_caller(e5: Path, bge: Path) -> None:
    with pytest.warns(UserWarning, match="asks for 'passage: ' before documents") as caught:
        Encoder.load(str(e5))
    assert "say prompt='passage: ' or prompt='query: ', or prompt='' if" in str(caught[0].message)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="asks for 'Represent this sentence"):
        Encoder.load(str(bge))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("prompt", ["", "query: "])
def test_the_encoder_does_not_warn_if_a_prompt_is_given(e5: Path, prompt: str) -> None:
    Encoder.load(str(e5), prompt=prompt)


@pytest.mark.filterwarnings("error")
def test_the_encoder_does_not_warn_of_a_model_without_such_prompts(model: Path) -> None:
    Encoder.load(str(model))
