"""The quantised models that a store keeps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.space.int8_model import Int8Facts, Int8Model
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.int8_models import (
    add_kept_int8,
    keep_int8,
    read_claimed_int8,
    read_kept_facts,
    read_kept_int8,
)


def model_of(space: Space, graph: bytes = b"<graph/>") -> Int8Model:
    """A model made of a space's weights."""
    facts = Int8Facts(space.weights, (0, 3), 0.99, 0.98, 512, {"openvino": "1"})
    return Int8Model(graph, b"weights", facts)


@pytest.fixture
def floats(space: Space) -> Space:
    """A space before its model is quantised."""
    return replace(space, dtype="int8")


def test_a_kept_model_is_read_by_its_space_alone(tmp_path: Path, floats: Space) -> None:
    root = str(tmp_path)
    made = keep_int8(root, floats, 0, model_of(floats))
    kept = made.applied(floats)
    assert kept.weights == made.digest != floats.weights
    assert read_kept_int8(root, kept) == made
    assert read_kept_facts(root, kept) == made.facts
    assert read_kept_int8(root, replace(kept, dtype="float32")) is None
    # what a later run gets from the model's float files
    assert add_kept_int8(floats, root, kept) == kept


def test_other_float_weights_are_not_taken_for_the_kept_model(
    tmp_path: Path, floats: Space
) -> None:
    kept = keep_int8(str(tmp_path), floats, 0, model_of(floats)).applied(floats)
    other = replace(floats, weights=64 * "7")
    assert add_kept_int8(other, str(tmp_path), kept).differences(kept) == ["weights"]


def test_the_first_model_of_a_run_stays_and_reembed_makes_another(
    tmp_path: Path, floats: Space
) -> None:
    root = str(tmp_path)
    first = keep_int8(root, floats, 0, model_of(floats))
    assert keep_int8(root, floats, 0, model_of(floats, b"<other/>")) == first
    assert read_claimed_int8(root, floats, 0) == first
    assert read_claimed_int8(root, floats, 1) is None


@pytest.mark.parametrize("name", ["model.xml", "model.bin", "about.json"])
def test_a_missing_or_changed_file_is_named(tmp_path: Path, floats: Space, name: str) -> None:
    made = keep_int8(str(tmp_path), floats, 0, model_of(floats))
    kept = made.applied(floats)
    file = tmp_path / layout.int8_model(made.digest) / name
    file.write_bytes(b"{}")
    with pytest.raises(SentenceBeamError, match=made.digest):
        read_kept_int8(str(tmp_path), kept)
    file.unlink()
    with pytest.raises(SentenceBeamError, match=f"{name} is missing"):
        read_kept_int8(str(tmp_path), kept)


@pytest.mark.parametrize("digest", ["../elsewhere", "", 7])
def test_no_path_of_a_damaged_store_leaves_it(
    tmp_path: Path, floats: Space, digest: object
) -> None:
    root = str(tmp_path / "store")
    made = keep_int8(root, floats, 0, model_of(floats))
    (tmp_path / "elsewhere").mkdir()
    for path in (tmp_path / "store" / layout.int8_model(made.digest)).iterdir():
        (tmp_path / "elsewhere" / path.name).write_bytes(path.read_bytes())
    claim = tmp_path / "store" / layout.int8_claim(floats.pooled_id, 0)
    claim.write_text(json.dumps({"digest": digest}))
    assert read_claimed_int8(root, floats, 0) is None
    with pytest.raises(SentenceBeamError, match="no digest of a quantised model"):
        read_kept_facts(root, replace(floats, weights=str(digest)))
