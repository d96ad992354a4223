"""Records on their way: few bytes, and the same records at the end."""

import string
from dataclasses import fields, replace

import apache_beam as beam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.beam.graph import UnitRecordCoder
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.records import COUNTS, UnitRecord
from sentence_beam.transforms.store.runs.record_bytes import FIGURES, pack, unpack

HEX = "0123456789abcdef"
PATH = "exports/2026-11-22/region=europe-west4/part-000017.parquet.." + "x"
NUMBER = st.integers(0, 1 << 60)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
DIGEST = st.text(HEX, min_size=16, max_size=16)
TEXT = st.text(max_size=20)


def typical() -> UnitRecord:
    """A unit of ten thousand rows of a file whose relative path has 60 characters, with all that is
    measured of it.
    """
    path = PATH[:60]
    name = f"{InputFile('', path, '', '', 0, '', '').key}-{17_000_000_000:012d}.2"
    sha256 = InputFile("", "its bytes", "", "", 0, "", "").key * 4
    return UnitRecord(
        path=layout.shard(name, "0123456789abcdef"), unit=name, file=path, range=(20_000, 30_000),
        rows=9_990, read=10_000, rejected=10, rejects=layout.rejects(name, "0123456789abcdef"), tokens=262_144,
        truncated=1_000, lost=70_000, bytes=16_777_216, sha256=sha256, embedded=9_000, reused=900, duplicates=90,
        real=240_000, padded=245_000, blank=9, known=222_000, worker="a-worker-on-some-machine-of-a-cluster-0123:12345",
        run="20261122T153748_123Z-fff87f", measures={name: 12_345.678 for name in FIGURES[:8]},
        rejects_sha256=sha256[::-1], checksum="q83vEg==", form="0123456789abcdef",
    )  # fmt: skip


PLAIN = replace(typical(), rejects=None, rejects_sha256=None, rejected=0, read=9_990)
SUM = "0123456789abcdef"
RECORDS = {
    "plain": PLAIN,
    "rejected rows": typical(),
    "pieces of documents": replace(
        PLAIN, documents=3_000, read=3_000, pieces_sum=SUM, documents_sum=SUM
    ),
    "a calibration": replace(PLAIN, moved=(1.23456, 0.5, 99.1234, 1e-5)),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_takes_at_most_250_bytes_with_the_coder_that_graphs_use(kind: str) -> None:
    coder, record = beam.coders.registry.get_coder(UnitRecord), RECORDS[kind]
    assert isinstance(coder, UnitRecordCoder)
    assert len(record.file) == 60
    encoded = coder.encode(record)
    assert len(encoded) <= 250
    assert coder.decode(encoded) == replace(record, worker="")
    assert coder.decode(encoded).measures == record.measures
    of_many = beam.coders.TupleCoder([beam.coders.VarIntCoder(), beam.coders.BytesCoder()])
    assert len(of_many.encode((63, pack(record)))) <= 250


@pytest.mark.parametrize(
    "run",
    ["", "20261122T153748Z-fff87f", "20261122T153748_123Z-FFF87F", "00000101T000000_000Z-000000"],
)
def test_every_name_of_a_run_comes_back(run: str) -> None:
    assert unpack(pack(replace(PLAIN, run=run))).run == run


@st.composite
def records(draw: st.DrawFn) -> UnitRecord:
    """A record with anything in it."""
    unit = f"{draw(st.text(HEX, min_size=1, max_size=17))}-{draw(st.text(string.digits + '.', min_size=1, max_size=15))}"
    named = st.one_of(st.none(), DIGEST.map(lambda digest: layout.shard(unit, digest)), TEXT)
    rejects = st.one_of(st.none(), DIGEST.map(lambda digest: layout.rejects(unit, digest)), TEXT)
    optional = st.one_of(st.none(), TEXT, DIGEST)
    return UnitRecord(
        path=draw(named), unit=unit, file=draw(TEXT), rejects=draw(rejects), sha256=draw(optional), run=draw(TEXT),
        range=(draw(NUMBER), draw(st.one_of(st.none(), NUMBER))), rejects_sha256=draw(optional),
        checksum=draw(optional), documents=draw(st.one_of(st.none(), NUMBER)), pieces_sum=draw(optional),
        documents_sum=draw(optional), form=draw(optional), damaged=tuple(draw(st.lists(TEXT, max_size=3))),
        moved=tuple(draw(st.lists(FLOAT, max_size=4))), device=draw(TEXT),
        measures=draw(st.dictionaries(st.one_of(TEXT, st.sampled_from(FIGURES)), FLOAT, max_size=4)),
        **{name: draw(NUMBER) for name in COUNTS},
    )  # fmt: skip


@given(records())
def test_what_is_packed_comes_back(record: UnitRecord) -> None:
    found = unpack(pack(record))
    assert {f.name: getattr(found, f.name) for f in fields(found)} == {
        f.name: getattr(record, f.name) for f in fields(found)
    }


@pytest.mark.parametrize("value", [0.1234567, 1.5e300, -3.25e-40, 0.0, 123456.0, 1e-7])
def test_sums_come_back_to_the_digit(value: float) -> None:
    assert unpack(pack(replace(typical(), moved=(value,)))).moved == (value,)
