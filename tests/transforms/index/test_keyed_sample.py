import hashlib

import numpy as np
import pytest

from sentence_beam.transforms.index import held_out_keys, sample_keys, sample_threshold, select


def _rows(n: int) -> tuple[np.ndarray, list[str]]:
    digests = [hashlib.blake2b(str(i).encode(), digest_size=16).digest() for i in range(n)]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(n, 16), [f"id-{i}é" for i in range(n)]


def test_keys_never_change() -> None:
    """A store that grows keeps its sample only while these values stand."""
    hashes, ids = _rows(2)
    assert sample_keys(hashes, ids).tolist() == [18400902059009531649, 186161728481744913]
    assert held_out_keys(hashes).tolist() == [16995513124256777529, 6983646885593452427]


def test_a_row_is_chosen_whatever_stands_around_it() -> None:
    hashes, ids = _rows(2000)
    order = np.random.default_rng(0).permutation(2000)
    shuffled = sample_keys(hashes[order], [ids[i] for i in order])
    assert np.array_equal(shuffled, sample_keys(hashes, ids)[order])
    assert np.array_equal(held_out_keys(hashes[order]), held_out_keys(hashes)[order])


def test_the_sample_is_spread_and_has_about_the_wanted_size() -> None:
    hashes, ids = _rows(20_000)
    chosen = select(sample_keys(hashes, ids), sample_threshold(2000, 20_000))
    tenths = chosen.reshape(10, -1).sum(axis=1)
    assert 2000 - 220 < chosen.sum() < 2000 + 220
    assert tenths.min() > 120
    assert tenths.max() < 280


def test_copies_are_held_out_together_but_sampled_apart() -> None:
    hashes, _ = _rows(1)
    copies = np.repeat(hashes, 400, axis=0)
    assert len(set(held_out_keys(copies).tolist())) == 1
    chosen = select(sample_keys(copies, [str(i) for i in range(400)]), sample_threshold(200, 400))
    assert 140 < chosen.sum() < 260


def test_held_out_and_sample_are_independent() -> None:
    hashes, ids = _rows(20_000)
    threshold = sample_threshold(10_000, 20_000)
    both = select(sample_keys(hashes, ids), threshold) & select(held_out_keys(hashes), threshold)
    assert 4700 < both.sum() < 5300


@pytest.mark.parametrize(
    ("want", "rows", "share"), [(0, 10, 0), (-1, 10, 0), (10, 10, 10), (99, 10, 10), (5, 0, 10)]
)
def test_thresholds_at_the_ends(want: int, rows: int, share: int) -> None:
    keys = np.array([0, 1, 2**63, 2**64 - 1] + [7] * 6, np.uint64)
    assert select(keys, sample_threshold(want, rows)).sum() == share


def test_no_rows() -> None:
    assert sample_keys(np.empty((0, 16), np.uint8), []).shape == (0,)


def test_hashes_and_ids_have_to_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        sample_keys(_rows(2)[0], ["a"])
