"""The one private name of Beam that storage reads: where Beam keeps the options of its
filesystems.
"""

from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.transforms.storage.beam_options import get_filesystem_options

CHECKED = (
    # after looking at FileSystems.set_options and get_filesystem of a newer Beam: write that
    # version here
    "2.77.0"
)


def test_options_that_were_set_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    assert get_filesystem_options() is None
    options = PipelineOptions(["--project=p"])
    FileSystems.set_options(options)
    assert get_filesystem_options() is options


def test_the_pinned_beam_is_the_version_whose_source_was_read() -> None:
    pins = (
        (Path(__file__).resolve().parents[3] / "constraints.txt").read_text(encoding="utf8").split()
    )
    assert f"apache-beam=={CHECKED}" in pins
