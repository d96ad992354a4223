"""JSON files are read strictly: what other programs read differently is one line."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.json_files import (
    check_not_cut_off,
    read_fields,
    read_json,
    read_json_if_there,
    read_known_fields,
)

BAD = {
    "": "not valid JSON",
    '{"a": 1': "not valid JSON",
    '{"a": NaN}': "NaN is not a number of JSON",
    '{"a": -Infinity}': "-Infinity is not a number of JSON",
    '{"a": 1e999}': "1e999 is too large a number",
    '{"a": 1, "b": {"c": 1, "c": 2}}': "key 'c' twice",
    '{"a": "\\ud800"}': "surrogates not allowed",
    "[" * 100_000: "recursion",
    "[]": "holds no JSON object",
    '"text"': "holds no JSON object",
    "\ufeff{}": "begins with a byte order mark; save it as UTF-8 without one",
    '{"a": ' + "9" * 5000 + "}": "not valid JSON",
}


@pytest.mark.parametrize("text", BAD, ids=BAD.values())
def test_what_is_not_json_is_one_line_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    for read in (read_json, read_json_if_there):
        with pytest.raises(OptionError, match=BAD[text]) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path} ")
        assert "\n" not in str(caught.value)


def test_other_encodings_missing_files_and_folders(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(OptionError, match=r"config\.json is missing"):
        read_json(path)
    assert read_json_if_there(path) == {}
    path.write_bytes('{"a": "é"}'.encode("latin-1"))
    with pytest.raises(OptionError, match="not valid JSON"):
        read_json(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(OptionError, match=r"config\.json cannot be read"):
        read_json_if_there(path)


def test_lists_and_whole_surrogate_pairs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    path.write_text('["\\ud83d\\ude00", 1.5]')
    assert read_json(path, list) == ["\U0001f600", 1.5]
    with pytest.raises(OptionError, match="no JSON object"):
        read_json(path)


def test_the_end_of_a_large_file_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"vocab": ["word"] * 5000}) + "\n" * 100)
    check_not_cut_off(path)
    whole = path.read_bytes().rstrip()
    for size in (0, 1, 500, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(OptionError, match=r"tokenizer\.json is cut off"):
            check_not_cut_off(path)


@dataclass(frozen=True)
class _Sizes:
    width: int
    names: tuple[str, ...] = ()


def test_fields_are_checked_and_unknown_ones_refused_if_all_are_known() -> None:
    path = Path("x.json")
    assert read_fields(_Sizes, {"width": 3, "names": ["a"], "other": 1}, path) == _Sizes(3, ("a",))
    with pytest.raises(OptionError, match=r"^x\.json: width is missing; fetch the model again$"):
        read_fields(_Sizes, {}, path)
    with pytest.raises(OptionError, match=r"^x\.json: names\[1\] is not a string"):
        read_fields(_Sizes, {"width": 3, "names": ["a", 2]}, path)
    with pytest.raises(OptionError, match=r"^x\.json: 'other' is not a known setting"):
        read_known_fields(_Sizes, {"width": 3, "other": 1}, path)
