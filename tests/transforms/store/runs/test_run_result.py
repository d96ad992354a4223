"""The record of how a run ended: what is damaged is no record, and is named."""

import json
from pathlib import Path

import pytest
from helpers.snapshots import night, numbered, run_name

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs.run_result import (
    has_committed,
    read_checked_result,
    read_result,
)
from sentence_beam.transforms.store.verification import faults

NO_RESULTS = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "brackets": b"[" * 100_000,
    "no text": b"\xff\xfe",
    "half": None,
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of one run."""
    folder = str(tmp_path / "store")
    night(folder, 0, numbered(0, 5))
    return folder


def result_file(root: str) -> Path:
    """The record of the run."""
    return Path(root) / "runs" / run_name(0) / "result.json"


@pytest.mark.parametrize("content", NO_RESULTS.values(), ids=NO_RESULTS)
def test_what_is_no_result_is_read_as_none_and_named_by_verify(
    root: str, content: bytes | None
) -> None:
    path = result_file(root)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert read_result(root, run_name(0)) is None
    assert not has_committed(root, run_name(0))
    (fault,) = faults(open_store(root).manifest)
    assert fault.startswith(f"{path} is not the result of a run (")
    path.unlink()
    assert faults(open_store(root).manifest) == []


def test_any_other_byte_is_noticed(root: str) -> None:
    path = result_file(root)
    whole = path.read_bytes()
    same = json.loads(whole)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)
        result = read_result(root, run_name(0))
        assert result is None or json.loads(changed) == same, at


def test_a_result_with_another_field_or_without_a_digest_is_none(root: str) -> None:
    path = result_file(root)
    said = json.loads(path.read_bytes())
    without = {name: value for name, value in said.items() if name != "digest"}
    for wrong, reason in (({**said, "durrency": ""}, "changed"), (without, "no digest")):
        path.write_text(json.dumps(wrong))
        assert not has_committed(root, run_name(0))
        with pytest.raises(SentenceBeamError, match=f"is not the result of a run .*{reason}"):
            read_checked_result(root, run_name(0))
