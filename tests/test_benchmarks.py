"""Measurements that replace the model: their encoder does all that `embed` asks of one.

Covers benchmarks/stub.py and the nights of benchmarks/nightly.py.
"""

from pathlib import Path

import pytest

from benchmarks.nightly import PARTITIONS, nights
from benchmarks.stub import stub_encoder, tiny_model

pytestmark = pytest.mark.usefixtures("plain_beam")


@pytest.mark.parametrize("partition", PARTITIONS)
def test_nights_without_a_model(tmp_path: Path, partition: str) -> None:
    rows = [(f"id{number}", f"the text of row {number}") for number in range(200)]
    model = tiny_model(tmp_path / "model")
    with stub_encoder():
        found = nights(rows, tmp_path, partition, "--model", str(model), "--dtype", "float32")
    assert found["full"].work["embedded"] == 200
    assert found["unchanged"].work["carried"] == 200
    assert found["1 % changed"].work["embedded"] == 2
