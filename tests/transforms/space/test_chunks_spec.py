"""Chunk SPECs."""

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.chunks_spec import ChunksSpec


@pytest.mark.parametrize(
    "spec",
    [
        "none",
        "sentences",
        "sentences:tokens=96",
        "budget",
        "budget:tokens=96,overlap=20,by=markdown,ends=stable,combine=mean",
    ]
    + ["late", "late:window=512,overlap=0,tokens=64,by=markdown"],
)
def test_a_canonical_spec_is_read_and_written(spec: str) -> None:
    assert str(ChunksSpec.parse(spec)) == spec


def test_defaults_are_left_out() -> None:
    assert str(ChunksSpec.parse("budget:combine=none,ends=greedy,overlap=0,by=text")) == "budget"
    assert ChunksSpec.parse("budget:tokens=9,overlap=2") == ChunksSpec.parse(
        "budget:overlap=2,tokens=9"
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("budgets", "did you mean budget?"),
        ("", "allowed: none, sentences, budget, late"),
        ("none:tokens=5", "none takes no options"),
        ("sentences:overlap=5", "allowed for sentences: tokens=N"),
        ("budget:token=5", "did you mean tokens?"),
        ("budget:tokens=many", "say tokens=N"),
        ("budget:ends=soft", "say ends=greedy|stable"),
        ("budget:tokens=5,tokens=6", "given twice"),
        ("budget:tokens=0", "tokens=0 is no length"),
        ("budget:tokens=20,overlap=20", "overlap=20 is no less than tokens=20"),
        ("late:window=20,overlap=21", "overlap=21 is no less than window=20"),
        ("late:combine=mean", "allowed for late: window=N"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line_that_mends_it(spec: str, said: str) -> None:
    with pytest.raises(OptionError, match="^chunks ") as error:
        ChunksSpec.parse(spec)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_budget_is_what_is_asked_for_and_what_there_is_room_for() -> None:
    assert ChunksSpec.parse("budget").budget(254) == 254
    assert ChunksSpec.parse("budget:tokens=96").budget(254) == 96
    assert ChunksSpec.parse("budget:tokens=96").budget(40) == 40
    assert ChunksSpec.parse("budget:tokens=96").budget(None) == 96
    for spec, room, said in [
        ("sentences", None, "as in sentences:tokens=256"),
        ("budget:overlap=30", None, "as in budget:tokens=256,overlap=30"),
        ("budget", 0, "shorter"),
        ("budget:overlap=30", 30, "give less"),
    ]:
        with pytest.raises(OptionError, match=said):
            ChunksSpec.parse(spec).budget(room)
