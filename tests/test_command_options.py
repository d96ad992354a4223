"""The commands and the classes that declare their options: flags, keys of TOML files and Python's
functions.

Covers pipelines/common/config_file.py.
Covers transforms/evaluation/diagnostics/diagnose_options.py.
Covers transforms/evaluation/evaluate_options.py.
Covers transforms/options/common.py.
Covers transforms/steps/options/embed.py.
Covers transforms/steps/options/index_options.py.
Covers transforms/steps/options/joins.py.
Covers transforms/steps/options/keywords.py.
Covers transforms/steps/options/search_options.py.
Covers transforms/steps/options/store.py.
Covers transforms/steps/options/vector_options.py.
Covers transforms/training/distill_options.py.
"""

import argparse
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from helpers.commands import Run, runner
from helpers.corpora import sentences, write_lines
from helpers.tiny_models import save_tiny_model

import sentence_beam as sb
from sentence_beam.pipelines.cli import COMMANDS, load_parser, main
from sentence_beam.pipelines.common import config_file
from sentence_beam.pipelines.common.options import every_command
from sentence_beam.transforms.base.option import declared_in, flag_of
from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import DiagnoseCommandOptions
from sentence_beam.transforms.evaluation.evaluate_options import EvaluateCommandOptions
from sentence_beam.transforms.steps.options import (
    embed,
    index_options,
    joins,
    search_options,
    store,
)
from sentence_beam.transforms.steps.options.keywords import EmbedKeywords, NeighboursKeywords
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.training.distill_options import DistillOptions
from sentence_beam.transforms.training.train_options import TrainCommandOptions, TrainOptions

pytestmark = pytest.mark.usefixtures("plain_beam")

KINDS: dict[str, type[Any]] = {
    "embed": embed.EmbedOptions,
    "plan": embed.PlanOptions,
    "fit": index_options.FitOptions,
    "recalibrate": index_options.RecalibrateOptions,
    "index": index_options.IndexOptions,
    "search": search_options.SearchOptions,
    "serve": search_options.ServeOptions,
    "neighbours": joins.NeighboursOptions,
    "dedup": joins.DedupOptions,
    "cluster": joins.ClusterOptions,
    "pairs": joins.PairsOptions,
    "info": store.InfoOptions,
    "files": store.FilesOptions,
    "diagnose": DiagnoseCommandOptions,
    "evaluate": EvaluateCommandOptions,
    "train": TrainCommandOptions,
    "distill": DistillOptions,
    "export": store.ExportOptions,
    "push": store.PushOptions,
    "verify": store.VerifyOptions,
    "rejects": store.RejectsOptions,
    "history": store.HistoryOptions,
    "diff": store.DiffOptions,
    "rollback": store.RollbackOptions,
    "report": store.ReportOptions,
    "forget": store.ForgetOptions,
    "vacuum": store.VacuumOptions,
    "watch": store.WatchOptions,
}
# The keywords of functions that take them as a TypedDict.
KEYWORDS = {
    "embed": get_type_hints(EmbedKeywords),
    "neighbours": get_type_hints(NeighboursKeywords),
}
# Of the command line alone: options that print and end the command.
EVERY = {"print_recipe", *(action.dest for action in every_command()._actions)}


def test_every_command_has_a_class_of_options() -> None:
    assert set(KINDS) == set(COMMANDS)


def actions_of(command: str) -> dict[str, argparse.Action]:
    """The actions of a command's own options, by the names of their values."""
    return {
        action.dest: action
        for action in load_parser(command)._actions
        if action.dest not in {"help", "help_all", "bare", *EVERY}
    }


@pytest.mark.parametrize("command", KINDS)
def test_the_flags_of_a_command_are_the_declared_fields(command: str) -> None:
    actions, declared = actions_of(command), declared_in(KINDS[command])
    assert list(actions) == list(declared)
    defaults = {item.name: item.default for item in fields(KINDS[command])}
    for name, action in actions.items():
        assert (action.option_strings or [action.metavar])[0] == flag_of(name, declared[name])
        assert action.help == declared[name].help
        if not action.required and action.default is not None:
            assert action.default == defaults[name]


@pytest.mark.parametrize("command", KINDS)
def test_a_key_of_a_toml_file_is_the_name_of_a_field(command: str, tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    for action in actions_of(command).values():
        key = (action.option_strings or [action.dest])[-1].lstrip("-").removeprefix("no-")
        file.write_text(f"{key} = {_toml(action)}\n")
        found = config_file.read_options(str(file), command, KINDS[command])
        assert [*found.own] == [action.dest]


def _toml(action: argparse.Action) -> str:
    return "true" if action.nargs == 0 else '"text"'


@pytest.mark.parametrize("command", KINDS)
def test_python_has_the_command_with_its_keywords(command: str) -> None:
    signature = inspect.signature(getattr(sb, command))
    found = set(signature.parameters)
    assert found - {"options"} | set(KEYWORDS.get(command, ())) >= set(declared_in(KINDS[command]))
    assert signature.return_annotation is not None


def test_a_store_remembers_the_options_that_are_declared_so() -> None:
    declared = declared_in(embed.EmbedOptions)
    remembered = {name for name, one in declared.items() if one.remembered is not None or one.gate}
    of_a_store = {item.name for item in fields(RememberedOptions)}
    assert remembered - of_a_store == {"partition", "unit_tokens"}  # which the manifest itself has
    # given with keep_columns; of a trial run; those that are the model's
    more = {"keep_types", "limit", "own_prompts"}
    assert of_a_store - remembered == more


# What functions return

SAME: dict[str, dict[str, Any]] = {
    "search": {"id": ("x.csv#3",), "k": 2},
    "pairs": {"k": 3, "distinct": True},
    "info": {},
    "files": {},
    "verify": {"sample": 0.5},
    "rejects": {},
    "history": {},
    "diff": {"old": "-1", "new": "latest"},
    "watch": {},
    "report": {"format": "openmetrics"},
    "vacuum": {"keep": 1, "dry_run": True},
    "push": {"to": "lance:tables#docs", "dry_run": True},
}
WRITE: dict[str, dict[str, Any]] = {
    "rejects": {"output": "rejects.csv"},
    "history": {"output": "history.csv"},
    "diff": {"output": "diff.csv"},
    "report": {"output": "report.html"},
    "export": {"output": "encoder"},
    "search": {"id": ("x.csv#3",), "output": "hits.csv"},
    "pairs": {"output": "pairs.csv"},
    "fit": {"method": "whitening", "output": "whitening"},
    "dedup": {"min_score": 0.9, "output": "dedup.csv"},
    "cluster": {"clusters": 2, "output": "cluster.csv"},
}


# What a training and a distillation are summed up by.
RECORD: dict[str, Any] = {
    "options": {"output": "new"}, "stopped_early": False, "steps": 1, "best_step": 1, "space": "0" * 64, "dim": 8,
    "rejected": 0, "data": None, "tokens": 1, "bytes": 1, "dev": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of two runs, the second of which has a rejected row."""
    folder = tmp_path_factory.mktemp("made")
    how = [
        "--store",
        str(folder / "s"),
        "--model",
        str(save_tiny_model("bert", folder / "model")),
        "--quiet",
    ]
    for texts in (sentences(12), [*sentences(11), " "]):
        file = write_lines(folder / "x.csv", ["text", *(f'"{text}"' for text in texts)])
        assert main(["embed", "--input", str(file), "--max-rejects", "1", *how]) == 0
    return folder


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], made: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in the folder of the store."""
    monkeypatch.chdir(made)
    return runner(capfd)


def words_of(command: str, keywords: dict[str, Any]) -> Iterator[str]:
    """The words of a command line with the same options as keywords."""
    declared = declared_in(KINDS[command])
    for name, value in keywords.items():
        if declared[name].positional:
            yield str(value)
        elif value is True:
            yield flag_of(name, declared[name])
        elif isinstance(value, tuple):
            yield from (f"{flag_of(name, declared[name])}={one}" for one in value)
        elif name == "k":
            yield from ("-k", str(value))
        else:
            yield f"{flag_of(name, declared[name])}={value}"


def called(command: str, keywords: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> Any:
    """What a function returns; it prints nothing."""
    capfd.readouterr()
    function: Callable[..., Any] = getattr(sb, command)
    found = function(**{"store": "s", **keywords})
    assert capfd.readouterr() == ("", "")
    return found


@pytest.mark.parametrize("command", SAME)
def test_a_function_returns_what_json_prints(
    command: str, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    if command == "push":
        pytest.importorskip("lancedb")
    line = [command, *words_of(command, {**SAME[command], "store": "s"}), "--json"]
    printed = json.loads(run(*line).ok().out)
    found = called(command, SAME[command], capfd)
    assert printed.pop("command") == command
    assert json.loads(json.dumps(found, default=str)) == printed


@pytest.mark.parametrize("command", WRITE)
def test_a_function_that_writes_a_file_returns_its_path(
    command: str, made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    assert called(command, WRITE[command], capfd) == WRITE[command]["output"]
    assert (made / WRITE[command]["output"]).exists()


def test_commands_write_to_the_store(
    made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    assert called("index", {"index": "Flat"}, capfd)["index"]["factory"] == "Flat"
    assert called("recalibrate", {"calibration": "none"}, capfd)["run"] is None
    assert called("rollback", {"run": "-1"}, capfd)["ledger"]["written"] == 11
    assert called("vacuum", {"keep": 1}, capfd)["removed"]


def test_plan_and_embed_without_a_store_that_is_there(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    found = sb.plan("x.csv", model="model", max_rejects=1)
    assert (found["store"], found["files"]) == (str(made / "store"), 1)
    assert sb.plan("x.csv", store="s")["carried_files"] == 1


def test_train_and_distill_return_the_path_of_the_model(
    made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    given: list[Any] = []
    monkeypatch.setattr(
        "sentence_beam.transforms.training.training_run.train",
        lambda asked, *_: given.append(asked) or RECORD,
    )
    monkeypatch.setattr(
        "sentence_beam.transforms.training.distillation.distill",
        lambda asked: given.append(asked) or RECORD,
    )
    monkeypatch.setattr("sentence_beam.pipelines.distill.check_installed", lambda: None)
    assert sb.train("x.csv", objective="triplet", output="new") == "new"
    assert sb.train(input="x.csv", objective="triplet", output="new") == "new"
    assert sb.distill(model="model", output="small", dim=8) == "small"
    assert capfd.readouterr() == ("", "")
    assert [asked.output for asked in given] == ["new", "new", "small"]
    assert (
        given[0] == given[1] == TrainOptions(inputs=("x.csv",), objective="triplet", output="new")
    )


def test_serve_returns_when_its_server_has_ended(
    made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette")
    monkeypatch.chdir(made)
    monkeypatch.setattr(
        "sentence_beam.transforms.serve.server.serve", lambda application, listening, begun: begun()
    )
    found = called("serve", {"port": 0, "host": "127.0.0.1"}, capfd)
    assert found["address"].startswith("http://127.0.0.1:")
    assert found["requests"] == 0


@pytest.mark.parametrize(
    ("command", "keywords", "message"),
    [
        ("info", {"snapshot": "nope"}, "has no snapshot nope"),
        ("vacuum", {"keep": 0}, "keep: 0 is not a whole number above zero"),
        ("forget", {"id": "a", "ids": "b"}, "ids: not allowed with id"),
    ],
)
def test_errors_name_keywords(
    command: str,
    keywords: dict[str, Any],
    message: str,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(made)
    with pytest.raises(sb.OptionError, match=message):
        getattr(sb, command)("s", **keywords)


def test_mistaken_arguments_are_type_errors() -> None:
    with pytest.raises(
        TypeError, match="unexpected keyword argument 'snapshop'; did you mean snapshot?"
    ):
        sb.info("s", snapshop="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'method'"):
        sb.fit(output="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 1 positional arguments but 2 were given"):
        sb.info("s", "x")  # type: ignore[misc, call-arg]


def test_the_width_is_dim_on_the_command_line(run: Run) -> None:
    asked = ("embed", "--input", "x.csv", "--store", "new")
    assert load_parser("embed").parse_args([*asked[1:], "--dim", "8"]).truncate_dim == "8"
    run(*asked, "--dim", "8", "--dim", "4").failed(2, "--dim")
    with pytest.raises(sb.OptionError, match="^truncate_dim: 0 is not"):
        sb.plan("x.csv", dim=0)


def test_diagnose_and_evaluate_take_keywords_or_an_object(
    made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    found = called("diagnose", {"figures": "cosines", "sample": 5}, capfd)
    assert sb.diagnose(sb.DiagnoseOptions(store="s", figures=("cosines",), sample=5)) == found
    assert (
        called("diagnose", {"figures": "cosines", "output": "figures.csv"}, capfd) == "figures.csv"
    )
    with pytest.raises(TypeError, match="got DiagnoseOptions and 'sample'; give one of them"):
        sb.diagnose(sb.DiagnoseOptions(store="s"), sample=5)
    texts = sentences(6)
    lines = [f"{i}.0\t{a}\t{b}" for i, (a, b) in enumerate(zip(texts, texts[1:], strict=False))]
    pairs = write_lines(made / "t.tsv", ["score\tsentence1\tsentence2", *lines])
    capfd.readouterr()
    scores = sb.evaluate(tasks=[f"t={pairs}"], model="model", poolers="mean", dim=[4])
    by_object = sb.evaluate(
        sb.EvaluateOptions(
            tasks=(f"t={pairs}",), model="model", poolers=("mean",), truncate_dims=(4,)
        )
    )
    assert isinstance(scores, sb.Evaluation)
    assert isinstance(by_object, sb.Evaluation)
    assert [(row["dim"], row["score"]) for row in scores.rows] == [
        (row["dim"], row["score"]) for row in by_object.rows
    ]
    assert capfd.readouterr() == ("", "")
    with pytest.raises(sb.OptionError, match="no task is given"):
        sb.evaluate(model="model")
