"""Names of options in errors: keywords for Python programs, flags for a command line."""

import copy

import pytest

from sentence_beam.transforms.base.errors import (
    OptionError,
    SentenceBeamError,
    cite,
    cite_argument,
    cite_as,
    first_line,
    refuse_damage,
)
from sentence_beam.transforms.store.records import Problem


@pytest.mark.parametrize(
    ("message", "text", "line"),
    [
        (f"{cite('max_tokens')} 0 is low", "max_tokens 0 is low", "--max-tokens 0 is low"),
        (f"{cite_argument('max_tokens')}: 0", "max_tokens: 0", "argument --max-tokens: 0"),
        (f"without {cite('append=True')}", "without append=True", "without --append"),
        (f"say {cite('keep_text=False')}", "say keep_text=False", "say --no-keep-text"),
        (f"leave {cite('k')} out", "leave k out", "leave -k out"),
        (cite_as("argument RUN", "run") + ": no run", "run: no run", "argument RUN: no run"),
        (f"{cite('id')}{cite('to')}", "idto", "--id--to"),
        ("/data/--input/x.csv has no {id}", "/data/--input/x.csv has no {id}", None),
        ("", "", None),
    ],
)
def test_an_option_has_the_name_that_its_reader_gives_it(
    message: str, text: str, line: str | None
) -> None:
    error = OptionError(message)
    assert str(error) == text
    assert error.line == first_line(error) == (text if line is None else line)
    assert repr(error) == f"OptionError({text!r})"


def test_the_names_stay_in_an_error_around_an_error_and_on_the_way_from_a_worker() -> None:
    inner = OptionError(f"a.csv is empty; leave it out of {cite('input')}")
    outer = OptionError(f"{cite('queries')}: {inner.message}")
    for error in (outer, copy.deepcopy(outer), Problem.from_error(outer).error()):
        assert str(error) == "queries: a.csv is empty; leave it out of input"
        assert error.line == "--queries: a.csv is empty; leave it out of --input"


@pytest.mark.parametrize("text", ["\ufdd0", "\ufdd0a", "\ufdd2\ufdd1\ufdd0", "\ufdd0a\ufdd2b"])
def test_a_name_with_the_characters_of_a_citation_is_no_fault(text: str) -> None:
    error = SentenceBeamError(f"{text}: see {cite('input')}")
    assert error.line.endswith(": see --input")
    assert str(error).endswith(": see input")


def test_damage_that_an_option_shows_has_its_names_too() -> None:
    with (
        pytest.raises(SentenceBeamError) as caught,
        refuse_damage("a.json is damaged", "fit again"),
    ):
        raise OptionError(f"{cite('max_tokens')}: 0")
    assert str(caught.value) == "a.json is damaged (max_tokens: 0); fit again"
    assert caught.value.line == "a.json is damaged (--max-tokens: 0); fit again"


def test_an_error_without_a_message() -> None:
    assert (str(SentenceBeamError()), SentenceBeamError().line) == ("", "")


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
