"""Standard input as an input file."""

import pytest

from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.options import EmbedOptions


def test_standard_input_is_not_for_workers_elsewhere() -> None:
    asked = EmbedOptions(input=("-",), store="store")
    with (
        pytest.raises(OptionError, match="input - is read in this process alone"),
        with_stdin(asked, local=False),
    ):
        pass
