"""Ditto, SBERT-WK and remove-biases on the packaged model against the authors' own code in
float64.
"""

import json

import numpy as np
import pytest

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.probe import BatchSharing

DITTO = {
    f"ditto:{head},states={states}": (f"ditto_att_{states.replace('-', '_')}_{head}", accept)
    for head, accepted in {
        "1-10": (5e-7, 1e-5, 5e-6),
        "3-7": (5e-6, 1e-5, 2e-5),
        "6-12": (5e-6, 2e-5, 2e-5),
    }.items()
    for states, accept in zip(("static", "last", "first-last"), accepted, strict=True)
}
WK = {
    "sbert-wk:start=2": ("sbertwk_ls2_w2", 2e-4),
    "sbert-wk": ("sbertwk_ls4_w2", 5e-4),
    "sbert-wk:start=2,weights=alignment": ("sbertwk_ls2_w2_alignment_only", 2e-4),
    "sbert-wk:weights=alignment": ("sbertwk_ls4_w2_alignment_only", 5e-4),
    "sbert-wk:start=2,weights=novelty": ("sbertwk_ls2_w2_novelty_only", 2e-4),
    "sbert-wk:weights=novelty": ("sbertwk_ls4_w2_novelty_only", 5e-4),
    "sbert-wk:start=2,window=1": ("sbertwk_ls2_w1", 2e-4),
    "sbert-wk:start=2,window=3": ("sbertwk_ls2_w3", 2e-4),
    "sbert-wk:start=0": ("sbertwk_ls0_w2", 1e-4),
    "mean:count=drop-last-special": ("sbertwk_ave_last_hidden", 5e-6),
}
WK_CUT_AS_USUAL = {
    "sbert-wk:start=2": ("sbertwk_ls2_w2_hftrunc256", 2e-4),
    "sbert-wk": ("sbertwk_ls4_w2_hftrunc256", 5e-4),
}
STATIC = {
    "static": ("promptbert_static", 5e-7),
    "ditto:1-10,states=static": ("ditto_att_static_1-10", 5e-7),
}
SHARED = {
    "mean": ("ditto_avg", 5e-6),
    "last2": ("ditto_avg_top2", 5e-6),
    "cls": ("sbertwk_CLS", 5e-6),
}
LONG = 51  # the one row that is longer than 256 tokens


@pytest.fixture(scope="module")
def golden(shared):
    """Folder of golden vectors, and their sentences."""
    folder = shared / "golden" / "public"
    return folder, [
        json.loads(line) for line in (folder / "sentences.txt").read_text().splitlines()
    ]


def _load(pooler: str, **options: object) -> Encoder:
    return Encoder.load(pooler=pooler, normalize=False, dtype="float32", device="cpu", **options)


def _check(golden, cases: dict[str, tuple[str, float]], rows: list[int], **options: object) -> None:
    """All poolers in one pass, each against its own file."""
    folder, sentences = golden
    encoder = _load("+".join(cases), **options)
    assert encoder.replicas[0].forward.together is BatchSharing.PACKED
    joined = encoder.encode([sentences[row] for row in rows])
    for found, (name, accept) in zip(
        np.split(joined, len(cases), axis=1), cases.values(), strict=True
    ):
        expected = np.load(folder / f"{name}.npy")[rows]
        assert np.abs(found - expected).max() <= accept, name


def _without(*rows: int) -> list[int]:
    return [row for row in range(64) if row not in rows]


def test_ditto(golden):
    _check(golden, DITTO, _without())


def test_sbert_wk(golden):
    _check(golden, WK, _without(LONG))  # the reference cuts it without putting [SEP] back


def test_sbert_wk_on_texts_cut_as_usual(golden):
    _check(golden, WK_CUT_AS_USUAL, _without())


def test_sbert_wk_at_the_authors_length(golden):
    _check(
        golden,
        {"sbert-wk": ("sbertwk_ls4_w2_max128_authors_default", 5e-4)},
        _without(LONG, 63),
        max_tokens=128,
    )


def test_static_averages(golden):
    _check(golden, STATIC, _without(LONG))  # the reference does not cut


def test_averages_in_the_code_of_several_authors(golden):
    _check(golden, SHARED, _without(LONG))


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("promptbert_static_remove_biases_max256", _without()),
        ("promptbert_static_remove_biases", _without(LONG)),
    ],
)
def test_remove_biases(golden, name, rows):
    folder, sentences = golden
    encoder = _load("remove-biases")
    embedded = encoder.embed(encoder.tokenize([sentences[row] for row in rows]))
    assert np.abs(embedded.vectors - np.load(folder / f"{name}.npy")[rows]).max() <= 5e-7
    # nothing left: the padding token's row
    assert [rows[i] for i in np.flatnonzero(embedded.status)] == [50, 62]


def test_prompt_takes_the_mask_of_the_packaged_model():
    encoder = _load('prompt:template=This sentence : "{text}" means [MASK].', max_tokens=32)
    tokenized = encoder.tokenize(["a [MASK] dog", "the " * 100, ""])
    places = tokenized.offsets[:-1] + tokenized.masks
    assert (tokenized.ids[places] == 103).all()
    assert np.count_nonzero(tokenized.ids == 103) == 3
    assert tokenized.truncated.tolist() == [False, True, False]
    assert tokenized.lengths.max() == 32
    denoised = _load('prompt:denoise=yes,template=This sentence : "{text}" means [MASK].')
    assert denoised.embed(denoised.tokenize(["", "a dog"])).status.tolist() == [2, 0]
