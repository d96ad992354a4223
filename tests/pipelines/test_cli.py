"""What the process of a command does without."""

import subprocess
import sys

import pytest

from pipelines.cli import CLOUD_SOURCES, unneeded_modules

EMBED = ["embed", "--input", "corpus", "--store", "store"]
IMPORT_BEAM = """
import sys
from transforms.base.imports import hide
for name in {hidden}:
    hide(name)
import pipelines.embed
print([name for name in ("google.cloud.bigquery", "google.cloud.pubsub") if name in sys.modules])
"""


def test_a_run_in_this_process_does_without_the_clients_of_other_services() -> None:
    assert unneeded_modules(EMBED) == ("pandas", *CLOUD_SOURCES)
    assert unneeded_modules(["search", "--store", "store"]) == ("pandas", *CLOUD_SOURCES)


@pytest.mark.parametrize(
    "named", [["--runner", "DataflowRunner"], ["--runner=DataflowRunner"], ["--config", "job.yaml"]]
)
def test_a_runner_finds_what_it_asks_for(named: list[str]) -> None:
    assert unneeded_modules([*EMBED, *named]) == ("pandas",)


@pytest.mark.parametrize("arguments", [[], ["files", "--store", "store"], ["--version"]])
def test_other_commands_find_everything(arguments: list[str]) -> None:
    assert unneeded_modules(arguments) == ()


def test_beam_is_imported_without_them() -> None:
    code = IMPORT_BEAM.format(hidden=unneeded_modules(EMBED))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
