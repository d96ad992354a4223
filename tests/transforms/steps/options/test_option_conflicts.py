"""Options that do not fit each other or the store: each is refused by its name, on made-up choices."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.snapshots import SPACE

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.option_conflicts import check
from sentence_beam.transforms.store.entries import RememberedOptions


def given(**values: Any) -> EmbedOptions:
    """Options as a person gave them."""
    return EmbedOptions(**{"input": ("/in/*.txt",), "store": "/store", **values})


def choice(
    space: dict[str, Any] | None = None,
    chunks: str = "none",
    partition: str = "file",
    **values: Any,
) -> Any:
    """What was chosen for a run; `values` are options that the store remembers."""
    return SimpleNamespace(
        options=RememberedOptions(model="m", chunks=chunks, **values),
        recipe=Recipe("m", chunks=ChunksSpec.parse(chunks)),
        space=replace(SPACE, **(space or {})),
        calibration=None,
        index=None,
        partition=partition,
    )


def snapshot(rows: int = 9, space: dict[str, Any] | None = None, **values: Any) -> Any:
    """The last snapshot of a store."""
    return SimpleNamespace(
        root="/store",
        rows=SimpleNamespace(written=rows),
        options=RememberedOptions(model="m", **values),
        space=replace(SPACE, **(space or {})),
        partition="file",
    )


OTHER = {"max_tokens": 8}
REFUSED = {
    "a batch size beside deterministic": (
        given(tokens_per_batch=64), choice(deterministic=True), None, "--tokens-per-batch: ",
    ),
    "int8 on a GPU": (
        given(device="cuda"), choice({"dtype": "int8"}), None, "--dtype int8 runs on the CPU",
    ),
    "int8 with a GPU for workers": (
        given(accelerator="type:nvidia-l4;count:1"), choice({"dtype": "int8"}), None,
        "--dtype int8 runs on the CPU",
    ),
    "a kept column that pieces have": (
        given(), choice(chunks="budget", keep_columns=("start",)), None,
        "--keep-columns start: with --chunks every shard has a column start",
    ),
    "whole documents in units by content": (
        given(), choice(chunks="late", partition="content"), None, "it needs whole documents",
    ),
    "documents of a store cut in another way": (
        given(chunks="budget"), choice(chunks="budget"), snapshot(),
        "--chunks 'budget': /store has its documents cut by 'none'",
    ),
    "input that has the store in it": (
        given(input=("/**/*.parquet",)), choice(), None, "takes in the store /store itself",
    ),
    "a version of a file": (
        given(input_version="3"), choice(), None, "--input-version: --input /in/*.txt is no table",
    ),
    "a version of several tables": (
        given(input=("delta:/a", "delta:/b"), input_version="3"), choice(), None,
        "there are 2 tables; name one --input",
    ),
    "a trial run over a whole store": (
        given(limit=5), choice(), snapshot(), "--limit 5 would leave only that many of the 9 rows",
    ),
    "another space than the store's": (
        given(max_tokens=8), choice(OTHER, max_tokens=8), snapshot(),
        "/store holds another space: max_tokens would change; leave the option out",
    ),
    "another space than the store's, with an option that the store has": (
        given(max_tokens=8, model="m"), choice(OTHER, max_tokens=8), snapshot(max_tokens=8),
        "no option says so: put the files of m back",
    ),
    "another space that no option asks for": (
        given(), choice(OTHER), snapshot(), "no option says so: put the files of m back",
    ),
    "another partition": (
        given(partition="content"), choice(partition="content"), snapshot(),
        "partition would change",
    ),
    "appending to units by content": (
        given(append=True), choice(partition="content"), None, "--append: --partition content",
    ),
    "a budget of a trial run": (
        given(limit=5, budget=60), choice(budget=60), None,
        "--budget 60: --limit takes the first rows alone, whatever waits; leave one of them out",
    ),
    "a remembered budget of a trial run": (
        given(limit=5), choice(budget=60), snapshot(limit=3), "/store remembers the budget",
    ),
    "a budget of units by content": (
        given(budget=60), choice(partition="content", budget=60), None,
        "--budget 60: --partition content has no units of single files",
    ),
    "a remembered budget of units by content": (
        given(partition="content", reembed=True), choice(partition="content", budget=60),
        snapshot(), "say --budget none too",
    ),
    "a budget of embedding all again": (
        given(reembed=True, budget=60), choice(budget=60), snapshot(),
        "--budget 60: --reembed makes every row new",
    ),
    "a remembered budget of embedding all again": (
        given(reembed=True), choice(budget=60), snapshot(), "say --budget none too",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    options, chosen, previous, message = REFUSED[name]
    with pytest.raises(OptionError) as raised:
        check(options, chosen, previous)
    assert message in raised.value.line
    assert "\n" not in raised.value.line


ALLOWED = {
    "a new store": (given(), choice(), None),
    "the same again": (given(), choice(), snapshot()),
    "all again in another space": (given(reembed=True), choice(OTHER), snapshot()),
    "all again with other chunks": (given(reembed=True), choice(chunks="budget"), snapshot()),
    "other chunks of a store without rows": (given(), choice(chunks="budget"), snapshot(0)),
    "a trial run on top of a trial run": (given(limit=5), choice(), snapshot(limit=3)),
    "a longer output of the same pooled vectors": (
        given(), choice({"normalize": False}), snapshot(),
    ),
    "embedding all again within a budget, of a new store": (
        given(reembed=True, budget=60), choice(budget=60), None,
    ),
    "all of it at once from now on": (given(reembed=True, budget="none"), choice(), snapshot()),
    "a version of one table": (given(input=("delta:/a",), input_version="3"), choice(), None),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_not(name: str) -> None:
    check(*ALLOWED[name])
