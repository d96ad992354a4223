"""Rows that wait on disk: they come back as they were, and nothing is left where they never do."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sentence_beam.transforms.corpus.waiting import WaitingRows


def test_rows_come_back_part_by_part_and_no_file_is_there_for_a_dead_process_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = pa.table({"n": list(range(6)), "text": list("abcdef")})
    waiting = WaitingRows(4)
    for start, part in ((0, [0, 0, 2]), (3, [0, 2, 2])):
        waiting.add(rows.slice(start, 3), np.array(part))
    assert waiting.rows == 6
    assert list(tmp_path.iterdir()) == []
    found = {number: table and table.column("text").to_pylist() for number, table in waiting.read()}
    assert found == {0: ["a", "b", "d"], 1: None, 2: ["c", "e", "f"], 3: None}
