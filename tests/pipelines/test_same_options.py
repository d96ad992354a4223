"""A run by flags, by Python and by what a store remembers: the same options, the same run, the same
mistakes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_lines

import sentence_beam as sb
from sentence_beam.pipelines.common import embed_options
from sentence_beam.pipelines.common.options import every_command
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import aliases_in, declared_in, flag_of
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.steps.options import EmbedOptions, joins
from sentence_beam.transforms.steps.options.keywords import EmbedKeywords, NeighboursKeywords
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.store.manifest import read_manifest

# Every option with a value that is not its default, which a run of the tiny model could have.
GIVEN: dict[str, Any] = {
    "format": "text",
    "delimiter": ";",
    "text_column": "body",
    "id_column": "key",
    "keep_columns": ("a", "b"),
    "keep_text": False,
    "limit": 3,
    "pooler": "max",
    "prompt": "passage: ",
    "query_prompt": "query: ",
    "max_tokens": 20,
    "normalize": False,
    "truncate_dim": 16,
    "dtype": "float32",
    "precision": "float16",
    "partition": "content",
    "unit_tokens": 5000,
    "index": "Flat",
    "metric": "l2",
    "max_rejects": 0.5,
    "max_deletes": 0.25,
    "max_unknown": 0.2,
    "max_bad_files": 2,
    "max_drift": 0.1,
    "max_answer_change": 0.05,
    "device": "cpu",
    "tokens_per_batch": 128,
    "worker_model": "/elsewhere",
}
DECLARED = declared_in(EmbedOptions)
COMMAND_LINE = {action.dest for action in every_command()._actions}
MISTAKES = {
    "format": "xml",
    "delimiter": "::",
    "limit": "0",
    "input_version": "last",
    "input_filter": " ",
    "max_tokens": "-1",
    "dtype": "float8",
    "precision": "int4",
    "partition": "rows",
    "unit_tokens": "many",
    "metric": "cos",
    "max_rejects": "1.5",
    "max_deletes": "half",
    "max_unknown": "30%",
    "max_bad_files": "1.5",
    "max_drift": "3",
    "max_answer_change": "5%",
    "device": "tpu",
    "tokens_per_batch": "1T",
    "store": " ",
    "model": "",
    "keep_columns": "a,a",
}


def flags(given: dict[str, Any]) -> list[str]:
    found = []
    for name, value in given.items():
        flag = flag_of(name, DECLARED[name])
        if isinstance(value, bool):
            found.append(flag if value else flag.replace("--", "--no-"))
        else:
            found += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return found


def test_flags_and_python_give_the_same_run(model: Path, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(3))
    given = {"input": (f"{inputs}/*.txt",), "store": str(store), "model": str(model), **GIVEN}
    by_flags = EmbedOptions(
        **vars(embed_options.parser().parse_args(flags({**given, "input": given["input"][0]})))
    )
    by_python = EmbedOptions(**given)
    assert by_flags == by_python
    assert set(GIVEN) | {"input", "store", "model"} <= {item.name for item in fields(EmbedOptions)}
    one, other = (resolve_run(asked, None, "run", local=True) for asked in (by_flags, by_python))
    started = other.job.run.started
    assert replace(one.job, run=replace(one.job.run, started=started)) == other.job
    assert one.index == other.index


def test_what_a_store_remembers_gives_the_same_recipe_and_space(
    model: Path, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(4))
    unfit = "limit text_column id_column keep_columns tokens_per_batch worker_model partition"
    given = {name: value for name, value in GIVEN.items() if name not in unfit.split()}
    first = sb.embed(f"{inputs}/*.txt", store=str(store), model=str(model), **given)
    assert first is not None
    asked = EmbedOptions(input=f"{inputs}/*.txt", store=str(store))
    again = resolve_run(asked, read_manifest(str(store)), "later", local=True)
    before = manifest_of(store)
    assert again.space.to_json() == before["space"]
    assert again.job.run.options.to_json() == before["options"]
    assert again.job.run.unit_tokens == GIVEN["unit_tokens"]
    assert again.index is not None
    assert again.index.index == "Flat"


def test_a_mistake_names_its_flag() -> None:
    for name, value in MISTAKES.items():
        with pytest.raises(OptionError, match=f"^{name}: ") as caught:
            EmbedOptions(**{"input": "a.txt", "store": "s", name: value})
        assert caught.value.line.startswith(f"argument {flag_of(name, DECLARED[name])}: ")


@pytest.mark.parametrize("name", ["max_rejects", "store", "keep_columns"])
def test_a_mistake_is_the_same_line_either_way(
    run: Run, store: Path, inputs: Path, name: str
) -> None:
    given = {"input": f"{inputs}/*.txt", "store": str(store), name: MISTAKES[name]}
    outcome = run("embed", *flags(given))
    with pytest.raises(OptionError) as caught:
        sb.embed(given.pop("input"), **given)
    assert outcome.status == caught.value.exit_code == 2
    assert outcome.err.startswith(f"sentence-beam embed: argument --{name.replace('_', '-')}")
    assert caught.value.line in outcome.err
    line = caught.value.line.removeprefix("argument --")
    assert str(caught.value) == line.replace("-", "_", name.count("_"))


def test_a_run_from_python_gives_its_snapshot_and_a_failed_one_its_error(
    model: Path, inputs: Path, store: Path
) -> None:
    glob = str(write_lines(inputs / "a.txt", sentences(5)))
    found = sb.embed(glob, store=str(store), model=str(model), dtype="float32")
    assert found is not None
    assert found.dataset().count_rows() == 5
    assert (
        sb.embed(EmbedOptions(input=(glob,), store=str(store))).manifest.data["work"]["carried"]
        == 5
    )
    with pytest.raises(OptionError, match="max_tokens would change") as caught:
        sb.embed(glob, store=str(store), max_tokens=8)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("kind", "keywords", "others"),
    [
        (EmbedOptions, EmbedKeywords, {"input"}),
        (joins.NeighboursOptions, NeighboursKeywords, {"store", "output", "k"}),
    ],
)
def test_the_keywords_of_a_function_are_the_fields_of_its_options(
    kind: Any, keywords: Any, others: set[str]
) -> None:
    """A keyword may be wider than the field: a path for its text, a list for a tuple.

    A flag with another name than its field is a keyword of the field's type.
    """
    wider = [
        (tuple[str, ...], Sequence[str] | Mapping[str, str]),
        (tuple[str, ...], StrPath | Sequence[StrPath]),
        (tuple[str, ...], Sequence[str]),
        (str, StrPath),
    ]
    typed = get_type_hints(keywords)
    fields_of = {item.name: item.type for item in fields(kind) if item.name not in others}
    aliases = {alias: name for alias, name in aliases_in(kind).items() if alias not in others}
    fields_of |= {alias: fields_of[name] for alias, name in aliases.items()}
    assert set(typed) == set(fields_of)
    for name, field in fields_of.items():
        allowed = [field]
        for exact, wide in wider:
            if field in (exact, exact | None):
                allowed.append(wide if field == exact else wide | None)
        assert typed[name] in allowed, name
