"""The same store from Prism, which is what `--runner=DirectRunner` means where it can be had."""

from pathlib import Path

import pytest
from helpers.engines import OPTIONS, start, the_same

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("runner", "partition"),
    [
        ("PrismRunner", "file"),
        pytest.param("PrismRunner", "content", marks=pytest.mark.slow),
        pytest.param("DirectRunner", "file", marks=pytest.mark.slow),
        pytest.param("DirectRunner", "content", marks=pytest.mark.slow),
    ],
)
def test_the_same_bytes(prism: str, corpus: str, model: Path, tmp_path: Path, runner: str, partition: str) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    options = ["--input", corpus, "--model", model, *OPTIONS, "--partition", partition, "--index", "Flat"]
    start(["embed", *options, "--store", here]).ended().ok()
    start(["embed", *options, "--store", there, f"--runner={runner}", f"--prism_location={prism}"]).ended().ok()
    assert the_same(there) == the_same(here)


def test_a_prism_that_is_not_there(corpus: str, model: Path, tmp_path: Path) -> None:
    arguments = ["embed", "--input", corpus, "--store", tmp_path / "store", "--model", model, *OPTIONS]
    outcome = start([*arguments, "--runner=PrismRunner", "--prism_location=nowhere/prism"]).ended()
    outcome.failed(1, "Prism could not be", "--prism_location")
