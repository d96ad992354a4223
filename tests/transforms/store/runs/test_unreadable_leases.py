"""A lease file that holds no lease keeps nobody from writing."""

import json
from pathlib import Path

import pytest

from sentence_beam.transforms.store.runs import lease, lease_file

WHOLE = {"run": "r", "host": "h", "pid": 1, "runner": "x", "job": "j", "renewed": 0.0}
UNREADABLE = [
    b"",
    b"[]",
    b"\xff\xfe",
    b'{"run": "r"}',
    *(
        json.dumps({**WHOLE, **change}).encode()
        for change in ({"pid": "x"}, {"renewed": "y"}, {"pid": -1})
    ),
]


@pytest.mark.parametrize("content", UNREADABLE)
def test_a_lease_that_cannot_be_read_is_nobodys(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_file, "WRITING_SECONDS", 0)
    (tmp_path / "lease.json").write_bytes(content)
    mine = lease.Lease.from_this_process("run2", "FnApiRunner", "job2", True)
    lease.acquire(str(tmp_path), mine)
    assert json.loads((tmp_path / "lease.json").read_bytes())["run"] == "run2"
