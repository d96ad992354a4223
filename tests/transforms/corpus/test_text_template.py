"""Templates: parsed, filled, and what is said of those that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
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
