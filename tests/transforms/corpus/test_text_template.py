"""Templates: parsed, filled, and what is said of those that cannot be."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns, match_inputs, plan_file, read_span
from sentence_beam.transforms.corpus.text_template import parse, text_template


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{title}\\n\\n{body}", {"title": "A", "body": "b"}, "A\n\nb"),
        ("{title}\n{body}", {"title": "A", "body": None}, "A\n"),
        ("{title}: {body}", {"title": " ", "body": None}, ""),
        ("{{{a}}} \\\\n", {"a": "1"}, "{1} \\n"),
        ("{a.b}{a.b}", {"a.b": "x"}, "xx"),
        ("{title!}", {}, None),
        ("{}", {}, None),
        ("{a:>10}", {}, None),
        ("{a", {}, None),
        ("a}", {}, None),
        ("no name", {}, None),
    ],
)
def test_templates(template: str, values: dict[str, str | None], text: str | None) -> None:
    if text is None:
        with pytest.raises(OptionError, match="brace|names no column"):
            text_template(template)
    else:
        assert parse(text_template(template)).fill(values.get) == text


@given(
    st.lists(st.sampled_from(["{{", "}}", "a", " ", "{x}", "{y.z}"]), max_size=8),
    st.text(min_size=1),
)
def test_python_fills_it_alike(parts: list[str], value: str) -> None:
    template = parse("".join(parts))
    if template.names and value.strip():
        wanted = "".join(parts).replace("{x}", value.replace("{", "{{").replace("}", "}}"))
        wanted = wanted.replace("{y.z}", "b").replace("{{", "{").replace("}}", "}")
        if "{" not in value and "}" not in value:
            assert template.fill({"x": value, "y.z": "b"}.get) == wanted
    assert "".join(template.parts({"x": value}.get, "y.z")) == "".join(
        template.parts({"x": value}.get, "")
    )


ROWS: list[dict[str, Any]] = [
    {"title": "One", "meta": {"body": "a cat"}, "year": 1999},
    {"title": None, "meta": {"body": "a dog"}, "year": None},
    {"title": "Three", "meta": None, "year": 7},
    {"title": " ", "meta": {"body": ""}, "year": None},
]


def write(path: Path) -> None:
    """The rows in the format that the file's name says."""
    table = pa.Table.from_pylist(ROWS)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    elif path.suffix == ".csv":
        flat = table.flatten().rename_columns(["title", "meta.body", "year"])
        pyarrow.csv.write_csv(flat, path)
    elif path.suffix == ".arrow":
        pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    else:
        pq.write_table(table, path)


def texts(folder: Path, template: str) -> tuple[list[str], list[str]]:
    """The texts of a folder's files, and the reasons of their rejected rows."""
    columns = Columns(template=text_template(template))
    spans = [
        span
        for file in match_inputs(f"{folder}/*")
        for span in plan_file(file, columns.texts, 1000)
    ]
    units = [unit for span in spans for unit in read_span(span, columns, 1000)]
    rejected = [reject.reason for unit in units for reject in unit.rejects]
    return [text for unit in units for text in unit.texts], rejected


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json", ".csv", ".arrow"])
def test_every_format_gives_the_same_texts(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a{suffix}")
    found, rejected = texts(tmp_path, "{title}\\n\\n{meta.body} ({year})")
    assert found == ["One\n\na cat (1999)", "\n\na dog ()", "Three\n\n (7)"]
    assert len(rejected) == 1


def test_plain_text_has_one_column(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a cat\na dog\n")
    assert texts(tmp_path, "about: {text}") == (["about: a cat", "about: a dog"], [])


def test_bytes_are_text_if_they_are_utf8(tmp_path: Path) -> None:
    pq.write_table(pa.table({"title": ["Ü".encode(), b"\xff"]}), tmp_path / "a.parquet")
    assert texts(tmp_path, "{title}") == (["Ü"], ["not UTF-8"])
