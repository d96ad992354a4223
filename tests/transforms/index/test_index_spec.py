"""The names of indexes."""

import faiss
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.index.index_spec import FLAT, IndexSpec
from sentence_beam.transforms.store.index_entries import IndexRequest


def test_a_name_is_read_once_into_its_parts() -> None:
    assert IndexSpec.parse("IVF64_HNSW32,PQ8x6") == IndexSpec(
        "IVF64_HNSW32,PQ8x6", 64, True, "PQ8x6"
    )
    assert IndexSpec.parse("compact").is_automatic
    assert not FLAT.is_trained
    assert IndexSpec.parse("IVF4,Flat").is_trained


@pytest.mark.parametrize(
    ("name", "code", "row"),
    [("Flat", 400, 408), ("SQ4", 50, 58), ("IVF4,RaBitQ", 21, 237), ("IVF4,PQ10x6", 8, 224)],
)
def test_the_bytes_of_a_row(name: str, code: int, row: int) -> None:
    found = IndexSpec.parse(name)
    assert (found.code_bytes(100), found.row_bytes(100)) == (code, row)


def test_a_request_is_stored_by_the_name_of_its_index() -> None:
    request = IndexRequest("IVF4,SQ8", target_recall=0.9)
    assert request.to_json()["index"] == "IVF4,SQ8"
    assert IndexRequest.from_json(request.to_json()).spec == IndexSpec.parse("IVF4,SQ8")


def test_a_wrong_name_is_told_where_it_is_read() -> None:
    with pytest.raises(OptionError, match="index HNSW32"):
        IndexRequest("HNSW32")
    with pytest.raises(ValueError, match=r"index\.request\.index is not an index"):
        IndexRequest.from_json({"index": "HNSW32"}, "index.request")


@pytest.mark.parametrize("codec", ["SQ6", "SQfp16", "RaBitQ2", "RaBitQ4", "RaBitQ7", "PQ25x4"])
def test_the_bytes_of_a_code_are_those_of_faiss(codec: str) -> None:
    index = faiss.index_factory(100, f"IVF8,{codec}")
    assert IndexSpec.parse(f"IVF8,{codec}").code_bytes(100) == index.code_size


def test_a_code_that_faiss_does_not_have_is_one_line() -> None:
    with pytest.raises(OptionError, match="index IVF4,PQ8x6: faiss refuses it for 100 components"):
        IndexSpec.parse("IVF4,PQ8x6").code_bytes(100)
