"""The values of a JSON file, whatever blocks its bytes come in, and one line for what is no JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import InputFile, match_inputs
from sentence_beam.transforms.corpus.formats import json_values
from sentence_beam.transforms.corpus.formats.json_values import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def written(folder: Path, text: str | bytes) -> InputFile:
    """A file that holds this."""
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "a.json").write_bytes(data)
    (file,) = match_inputs(str(folder / "a.json"))
    return file


def values_of(file: InputFile) -> list[Any]:
    """All values of a file."""
    return [value for block in read_json(file) for value in block]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(VALUES, max_size=6),
    block=st.integers(1, 9),
    in_array=st.booleans(),
    gap=st.sampled_from([" ", "\n", "\r\n\t "]),
    ascii_=st.booleans(),
)
def test_values_do_not_depend_on_blocks(
    tmp_path: Path, values: list[Any], block: int, in_array: bool, gap: str, ascii_: bool
) -> None:
    said = [json.dumps(value, ensure_ascii=ascii_) for value in values]
    text = f"{gap}[{f'{gap},'.join(said)}{gap}]{gap}" if in_array else gap.join(said)
    if not in_array and text.startswith("["):
        text = f"0 {text}"
        values = [0, *values]
    file = written(tmp_path, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "BLOCK", block)
        assert values_of(file) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2", "at character 5 (cut short)"),
        ("[1 2]", "at character 3 (Expecting ',' delimiter)"),
        ("[1] 2", "at character 4 (something follows the array)"),
        ('[{"a": 1}, {"b" 2}]', "at character 11 (Expecting ':' delimiter)"),
        ('{"a": "never ends', "at character 0 (Unterminated string starting at)"),
        ("[" * 100_000, "brackets too deep"),
    ],
)
def test_what_is_no_json_is_one_line_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SentenceBeamError) as raised:
        values_of(written(tmp_path, text))
    line = str(raised.value)
    assert line.startswith(f"{tmp_path}/a.json is no JSON")
    assert said in line
    assert "\n" not in line


def test_a_value_larger_than_any_may_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_values, "MOST_CHARACTERS", 40)
    monkeypatch.setattr(json_values, "BLOCK", 8)
    assert values_of(written(tmp_path, '["short", "ones"]')) == ["short", "ones"]
    with pytest.raises(SentenceBeamError, match="a value of more than 40 characters"):
        values_of(written(tmp_path, json.dumps(["x" * 200])))


def test_blocks_have_some_values_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "VALUES", 3)
    blocks = list(read_json(written(tmp_path, json.dumps(list(range(8))))))
    assert blocks == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_an_empty_file_and_an_empty_array_have_no_values(tmp_path: Path) -> None:
    assert values_of(written(tmp_path, " \n")) == []
    assert values_of(written(tmp_path, "[ ]")) == []


def test_other_encodings(tmp_path: Path) -> None:
    assert values_of(written(tmp_path, '["é"]'.encode("utf-16"))) == ["é"]
    assert values_of(written(tmp_path, b'["\xff"]')) == ["\udcff"]
