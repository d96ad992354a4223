"""`--dtype int8`: which options it goes with, and one model for all runs of a store.

Covers transforms/encoder/openvino_pass.py.
Covers transforms/encoder/quantise.py.
Covers transforms/steps/plan/quantised_model.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, vectors_of, write_lines

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.space.int8_model import Int8Model
from sentence_beam.transforms.store import open_store


@pytest.fixture
def corpus(inputs: Path) -> Path:
    """A file with twenty rows."""
    return write_lines(inputs / "a.txt", sentences(20))


def test_options_that_do_not_fit_are_refused_by_name(
    embed: Run, plan: Run, corpus: Path, store: Path
) -> None:
    said = ("pooler static", "first-last", "--dtype float32")
    embed(corpus, "--dtype", "int8", "--pooler", "static").failed(2, *said)
    said = ("pooler ditto", "--dtype float32")
    embed(corpus, "--dtype", "int8", "--pooler", "mean+ditto:1-1").failed(2, *said)
    plan(corpus, "--dtype", "int8").failed(2, "--dtype float32")  # not planned, ever
    assert manifest_of(store) is None
    embed(corpus, "--dtype", "float32", "--quiet").ok()
    embed(corpus, "--dtype", "int8").failed(2, "dtype would change", "--reembed")


def test_all_runs_have_one_model_until_reembed(
    run: Run, embed: Run, corpus: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("openvino", "nncf"):
        pytest.importorskip(library, reason=f"{library} of the extra openvino is not installed")
    from sentence_beam.transforms.encoder import quantise as module

    made = []
    quantise = module.quantise

    def counted(*arguments: Any) -> Int8Model:
        made.append(quantise(*arguments))
        return made[-1]

    monkeypatch.setattr(module, "quantise", counted)
    embed(corpus, "--dtype", "int8", "--pooler", "first-last").ok()
    assert "cosine with float32" in run("embed", "--input", corpus, "--store", store).ok().out
    space = manifest_of(store)["space"]
    assert (space["dtype"], [space["weights"]]) == ("int8", [model.digest for model in made])
    vectors = np.array(list(vectors_of(store).values()))
    exact = Encoder.from_recipe(
        Recipe.from_options({**manifest_of(store)["options"], "dtype": "float32"})
    )
    cosines = np.einsum("nd,nd->n", exact.encode(sentences(20)), vectors)
    assert cosines.min() > 0.9  # the tiny model's weights are random
    first = sentences(20)[0]
    hits = open_store(str(store)).search([first], 1)[0]
    assert hits[0]["score"] == pytest.approx(1, abs=1e-3)
    run("verify", "--store", store).ok()
    write_lines(corpus.with_name("b.txt"), sentences(10, 20))
    embed(corpus.with_name("*"), "--dtype", "auto").ok()
    assert manifest_of(store)["space"] == space
    run("vacuum", "--store", store, "--keep", "1", "--older-than", "0s").ok()
    run("verify", "--store", store).ok()
    run("export", "--store", store, "--output", store / "x").failed(2, "int8 is not portable")
    assert len(made) == 1
    embed(corpus.with_name("*"), "--reembed").ok()
    assert len(made) == 2
    weights = store / "int8" / manifest_of(store)["space"]["weights"] / "model.bin"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert run("verify", "--store", store).status != 0
