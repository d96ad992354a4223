"""Pooler SPECs.

Covers transforms/space/poolers.py.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space import PoolerSpec, parse_pooler
from sentence_beam.transforms.space.pooler_spec import POOLERS, POSITIONAL


def test_canonical_form_holds_every_parameter():
    short, long = parse_pooler("first-last"), parse_pooler("first-last:first=embeddings,count=all")
    assert short == long
    assert hash(short) == hash(long)
    assert short.to_json() == {
        "parts": [{"name": "first-last", "count": "all", "first": "embeddings"}]
    }


def test_every_key_of_a_pooler_is_in_its_json():
    default = {
        "name": "sbert-wk",
        "start": "auto",
        "window": 2,
        "weights": "combined",
        "mix": 0.5,
        "tokens": "variance",
        "variant": "reference",
        "importance": "selected",
        "count": "drop-last-special",
    }
    assert parse_pooler("sbert-wk").to_json() == {"parts": [default]}
    assert parse_pooler("sbert-wk:mix=0.5,tokens=variance").to_json() == {"parts": [default]}
    assert PoolerSpec.from_json({"parts": [default]}) == parse_pooler("sbert-wk")
    assert parse_pooler("sbert-wk:mix=0.25,tokens=even").to_json()["parts"] == [
        {**default, "mix": 0.25, "tokens": "even"}
    ]


def test_concatenation_and_width():
    spec = parse_pooler("mean:layer=2+static+static:from=embeddings")
    assert [part.name for part in spec.parts] == ["mean", "static", "static"]
    assert spec.parts[0].option("layer") == 2
    assert spec.dim(24, 12) == 24 + 12 + 24


FREE = {"head": st.from_regex("[1-9][0-9]?-[1-9]", fullmatch=True)} | {
    "table": st.sampled_from(["/a/b", "a+b/mean+c", "../x=y", "/x=y"]),
    "template": st.sampled_from(['"{text}" + mean, is [MASK].', "{text}=template=<mask>"]),
}


@st.composite
def part_specs(draw, name):
    """One pooler with some of its options, template last."""
    keys = POOLERS[name]
    needed = {key for key, option in keys.items() if option.default is None}
    chosen = needed | draw(st.sets(st.sampled_from(sorted(keys)) if keys else st.nothing()))
    if name == "remove-biases":
        chosen = draw(st.sampled_from([set(), {"variant"}, chosen | {"table"}])) - {"variant"}
    # a mixture is of both kinds of weights, an importance of tokens that are not even
    if name == "sbert-wk":
        chosen -= {"weights", "importance"} if chosen & {"mix", "tokens"} else set()
    items = []
    for key in sorted(chosen, key=lambda key: (key == "template", key)):
        numbers = st.integers(0, 99).map(str) if keys[key].number else st.nothing()
        numbers |= (
            st.integers(1, 999).map(lambda n: f"{n / 1000}") if keys[key].decimal else st.nothing()
        )
        free = FREE[key] if keys[key].form else st.nothing()
        value = draw(
            st.one_of(
                st.sampled_from(keys[key].words) if keys[key].words else st.nothing(), numbers, free
            )
        )
        if name == "remove-biases" and value == "none":
            value = "none,variant=generic,top=0" if "top" not in chosen else "/t"
        bare = POSITIONAL.get(name) == key and not value.startswith("none") and draw(st.booleans())
        items.append(value if bare else f"{key}={value}")
    return ":".join([name, ",".join(items)]) if items else name


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_spec_survives_text_and_json(data):
    names = data.draw(
        st.lists(st.sampled_from(sorted(set(POOLERS) - {"auto"})), min_size=1, max_size=3)
    )
    texts = [data.draw(part_specs(name)) for name in names]
    for text in texts:
        assert str(parse_pooler(str(parse_pooler(text)))) == str(parse_pooler(text))
    joinable = [text for text in texts if not parse_pooler(text).parts[0].rewrites_text] or texts[
        :1
    ]
    spec = parse_pooler("+".join(joinable))
    assert len(spec.parts) == len(joinable)
    assert parse_pooler(str(spec)) == spec
    assert PoolerSpec.from_json(spec.to_json()) == spec


def test_positional_arguments_and_their_keys_are_one():
    assert (
        parse_pooler("ditto:1-10")
        == parse_pooler("ditto:head=1-10")
        == parse_pooler("ditto:states=first-last,1-10")
    )
    assert parse_pooler("tfidf:/t") == parse_pooler("tfidf:table=/t")
    assert parse_pooler("sif:/t") == parse_pooler(
        "sif:table=/t,a=1e-3,states=static,count=no-special"
    )
    assert parse_pooler("remove-biases:/t") == parse_pooler(
        "remove-biases:/t,variant=generic,top=36"
    )
    assert parse_pooler("remove-biases") == parse_pooler("remove-biases:variant=reference")
    assert parse_pooler("sbert-wk:start=4") != parse_pooler("sbert-wk")


def test_plus_in_paths_and_templates():
    spec = parse_pooler("tfidf:/a+b/c,unseen=max+mean:layer=1")
    assert [part.name for part in spec.parts] == ["tfidf", "mean"]
    assert spec.parts[0].table == "/a+b/c"
    template = "1 + mean, {text} = [MASK]."
    assert (
        parse_pooler(f"prompt:denoise=yes,template={template}").parts[0].option("template")
        == template
    )


def test_width_of_static_poolers_is_that_of_embedding_rows():
    spec = parse_pooler(
        "ditto:1-1,states=static+ditto:1-1+tfidf:/t+sbert-wk+remove-biases:/t,case=keep"
    )
    assert spec.dim(24, 12) == 12 + 24 + 24 + 24 + 12
    assert parse_pooler("sif:/t+sif:/t,states=last").dim(24, 12) == 12 + 24


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
        ("ditto", "needs L-H"),
        ("ditto:1-1,2-2", "key=value"),
        ("ditto:1-1,head=2-2", "twice"),
        ("ditto:0-3", "both from 1"),
        ("ditto:1-1,states=raw", "first-last|last|static"),
        ("tfidf", "needs PATH"),
        ("tfidf:unseen=max", "needs PATH"),
        ("tfidf:/t,scale=length", "sum|none|norm"),
        ("sbert-wk:4", "key=value"),
        ("sbert-wk:start=first", "auto|N"),
        ("sbert-wk:window=-1", "window=N"),
        ("sbert-wk:mix=1.5", "mix=0 to mix=1"),
        ("sbert-wk:mix=0.2,weights=novelty", "weights=combined"),
        ("sbert-wk:tokens=even,importance=all", "tokens=variance"),
        ("sif", "needs PATH"),
        ("sif:/t,a=0", "a above 0"),
        ("sif:/t,a=-1", "a=X"),
        ("remove-biases:top=3", "variant=generic or a PATH"),
        ("remove-biases:/t,variant=reference", "variant=generic or a PATH"),
        ("remove-biases:variant=generic", "top=0"),
        ("remove-biases:/t+mean", "case=keep"),
        ("prompt", "template=TEXT"),
        ("prompt:denoise=maybe,template={text}", "no|yes"),
        ("mean+prompt:template={text} [MASK]", "stands alone"),
    ],
)
def test_mistakes_are_one_line_with_what_is_allowed(text, allowed):
    with pytest.raises(OptionError) as caught:
        parse_pooler(text)
    assert allowed in str(caught.value)
    assert "\n" not in str(caught.value)
