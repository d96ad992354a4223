"""Pooler SPECs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import OptionError
from transforms.space import PoolerSpec, parse_pooler
from transforms.space.spec import POOLERS


def test_canonical_form_holds_every_parameter():
    short, long = parse_pooler("first-last"), parse_pooler("first-last:first=embeddings,count=all")
    assert short == long
    assert hash(short) == hash(long)
    assert short.to_json() == {"parts": [{"name": "first-last", "count": "all", "first": "embeddings"}]}


def test_concatenation_and_width():
    spec = parse_pooler("mean:layer=2+static+static:from=embeddings")
    assert [part.name for part in spec.parts] == ["mean", "static", "static"]
    assert spec.parts[0].option("layer") == 2
    assert spec.dim(24, 12) == 24 + 12 + 24


@given(st.data())
def test_every_spec_survives_text_and_json(data):
    def part(name):
        keys = POOLERS[name]
        chosen = data.draw(st.sets(st.sampled_from(sorted(keys)))) if keys else set()
        items = [f"{key}={data.draw(st.sampled_from(keys[key].words))}" for key in chosen]
        return ":".join([name, ",".join(items)]) if items else name

    names = data.draw(st.lists(st.sampled_from(sorted(set(POOLERS) - {"auto"})), min_size=1, max_size=3))
    spec = parse_pooler("+".join(part(name) for name in names))
    assert parse_pooler(str(spec)) == spec
    assert PoolerSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("average", "mean, cls"),
        ("", "mean, cls"),
        ("mean+", "mean, cls"),
        ("mean:", "key=value"),
        ("mean:size=3", "count=all|no-special"),
        ("mean:count=some", "no-special"),
        ("mean:layer=-1", "last|N"),
        ("mean:layer=one", "last|N"),
        ("mean:count=all,count=all", "twice"),
        ("mean:no-special", "key=value"),
        ("mean+auto", "alone"),
        ("auto:count=all", "takes no options"),
    ],
)
def test_mistakes_are_one_line_with_what_is_allowed(text, allowed):
    with pytest.raises(OptionError) as caught:
        parse_pooler(text)
    assert allowed in str(caught.value)
    assert "\n" not in str(caught.value)
