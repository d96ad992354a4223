"""Messages for Python programs: parameters in place of flags."""

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.python_names import named_in_python, parameters_of, python_names
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.store.records import Problem

PARAMETERS = parameters_of(EmbedOptions)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("argument --max-tokens: 0 is no number", "max_tokens: 0 is no number"),
        (
            "argument --prompt-name: not allowed with argument --prompt",
            "prompt_name: not allowed with prompt",
        ),
        (
            "--keep-columns a: rename it, or say --no-keep-text",
            "keep_columns a: rename it, or say keep_text=False",
        ),
        ("--append: it needs --partition file", "append: it needs partition file"),
        ("name all files, without --append", "name all files, without append=True"),
        ("more than --max-rejects 0.01 allows", "more than max_rejects 0.01 allows"),
    ],
)
def test_flags_become_parameters(line: str, message: str) -> None:
    assert named_in_python(line, PARAMETERS) == message
    assert named_in_python(message, PARAMETERS) == message


@pytest.mark.parametrize(
    "line",
    [
        "--runner FlinkRunner: name a job server by --flink_job_server_jar",
        "`sentence-beam rejects --store s` lists them",
        "make one with sentence-beam fit --store s, as for --other",
        "/data/--input/x.csv, a--input and x/--input",
    ],
)
def test_flags_of_others_commands_and_paths_stay(line: str) -> None:
    assert named_in_python(line, PARAMETERS) == line


def test_a_flag_that_is_repeated_is_a_list_in_python() -> None:
    assert (
        named_in_python("--pooler x is not known", {"poolers": False}) == "poolers x is not known"
    )


def test_a_command_still_has_the_line_with_flags_wherever_the_error_came_from() -> None:
    with (
        pytest.raises(OptionError) as caught,
        python_names({"store": False}),
        python_names({"k": False}),
    ):
        raise OptionError("--store s and -k")
    assert str(caught.value) == "store s and -k"
    assert caught.value.line == "--store s and -k"
    assert Problem.from_error(caught.value).message == "--store s and -k"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (1, "SentenceBeamError"),
        (2, "OptionError"),
        (3, "DataGateError"),
        (4, "LedgerError"),
        (9, "SentenceBeamError"),
    ],
)
def test_a_problem_becomes_the_error_of_its_exit_status(status: int, kind: str) -> None:
    assert type(Problem("so", status).error()).__name__ == kind
