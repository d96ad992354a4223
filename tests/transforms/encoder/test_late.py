"""Late chunking: pieces pooled from the token states of whole windows; documents averaged from
their pieces.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.families import save_family
from helpers.tiny_models import WORDS

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder, Windows
from sentence_beam.transforms.pooling.simple import OneLayer
from sentence_beam.transforms.pooling.states import Pooled, TokenStates

WORD = WORDS.split()
TEXT = " ".join(WORD[(7 * n) % len(WORD)] for n in range(150))


def _spans(text: str, words: int) -> list[tuple[int, int]]:
    """Pieces of so many words."""
    starts = [place for place in range(len(text)) if place == 0 or text[place - 1] == " "]
    ends = [place for place in range(1, len(text) + 1) if place == len(text) or text[place] == " "]
    return [(starts[n], ends[min(n + words, len(ends)) - 1]) for n in range(0, len(starts), words)]


@pytest.fixture(scope="module")
def bert(tiny: dict[str, Path]) -> Encoder:
    return Encoder.load(str(tiny["bert"]), pooler="mean", dtype="float32", device="cpu")


@pytest.mark.parametrize(
    "pooler",
    ["mean", "max", "cls", "ditto:1-2", "sbert-wk:start=1", "mean+static", "weighted-mean"],
)
def test_one_piece_in_one_window_is_plain_pooling_to_the_bit(
    pooler: str, tiny: dict[str, Path]
) -> None:
    encoder = Encoder.load(
        str(tiny["bert"]), pooler=pooler, dtype="float32", device="cpu", prompt="the cat "
    )
    texts = ["a man is playing the guitar", "dog", TEXT[:60]]
    found = encoder.embed_pieces(encoder.windows(texts, [[(0, len(text))] for text in texts]))
    assert np.array_equal(found.vectors, encoder.encode(texts))


def _mean_by_hand(encoder: Encoder, windows: Windows, piece: int) -> np.ndarray:
    """The mean over a piece's tokens of the last layer's states, each window run alone."""
    states = []
    for part in windows.pieces[piece]:
        tokenized = windows.tokenized.take(np.array([part.window]))
        with torch.inference_mode():
            (_, found, _), *_ = encoder.replicas[0].states(
                next(iter(encoder.plan(tokenized).batches))
            )
        states.append(found.hidden[max(found.hidden)][part.first : part.stop])
    return torch.cat(states).mean(dim=0).numpy()


def test_pieces_are_pooled_from_the_states_of_their_windows_tokens(bert: Encoder) -> None:
    texts, spans = (
        [TEXT, "dog cat", TEXT[:80]],
        [_spans(TEXT, 7), [(0, 3), (4, 7)], _spans(TEXT[:80], 4)],
    )
    windows = bert.windows(texts, spans, window=34, overlap=12)
    found = bert.embed_pieces(windows)
    assert len(found.vectors) == sum(map(len, spans))
    for piece in range(len(windows.pieces)):
        by_hand = _mean_by_hand(bert, windows, piece)
        assert np.allclose(found.vectors[piece], by_hand / np.linalg.norm(by_hand), atol=1e-5)
    assert np.array_equal(
        windows.tokens[: len(spans[0])], [7] * (len(spans[0]) - 1) + [150 % 7 or 7]
    )


def test_without_memory_for_all_pieces_they_are_pooled_in_parts(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bert = Encoder.load(str(tiny["bert"]), pooler="mean", dtype="float32", device="cpu")
    texts, spans = [TEXT, TEXT[40:], "dog"], [_spans(TEXT, 7), _spans(TEXT[40:], 3), [(0, 3)]]
    windows = bert.windows(texts, spans, window=34, overlap=12)
    expected, pooled, failed = bert.embed_pieces(windows), OneLayer.__call__, []

    def limited(self: OneLayer, states: TokenStates) -> Pooled:
        if len(states.token_ids) > 20:
            failed.append(len(states.token_ids))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return pooled(self, states)

    monkeypatch.setattr(OneLayer, "__call__", limited)
    for known in (False, True):
        failed.clear()
        found = bert.embed_pieces(windows)
        np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
        np.testing.assert_array_equal(found.status, expected.status)
        assert bool(failed) != known, "what there was no memory for is not tried again"
        assert found.stats.oom_splits > 5
        assert (found.stats.real, found.stats.padded) == (
            expected.stats.real,
            expected.stats.padded,
        )


def test_a_token_s_state_comes_from_the_window_in_which_it_lies_farthest_from_an_edge(
    bert: Encoder,
) -> None:
    window, overlap = 32, 10
    windows = bert.windows([TEXT], [_spans(TEXT, 1)], window=window, overlap=overlap)
    room, count = window - 2, 150
    firsts = [*range(0, count - room, room - overlap), count - room]
    lengths = windows.tokenized.lengths
    assert lengths.max() <= window
    for token, parts in enumerate(windows.pieces):
        (part,) = parts
        inside = [n for n, first in enumerate(firsts) if first <= token < first + room]
        distances = {}
        for n in inside:  # where the document itself begins and ends no edge cuts anything off
            left = token - firsts[n] if n else count
            right = firsts[n] + room - 1 - token if n < len(firsts) - 1 else count
            distances[n] = min(left, right)
        # windows begin at words, some tokens early at most
        assert distances.get(part.window, -1) >= max(distances.values()) - overlap // 4 - 1


def test_static_vectors_know_nothing_of_their_window(tiny: dict[str, Path]) -> None:
    encoder = Encoder.load(
        str(tiny["bert"]), pooler="static:count=no-special", dtype="float32", device="cpu"
    )
    spans = _spans(TEXT, 5)
    found = encoder.embed_pieces(encoder.windows([TEXT], [spans], window=30)).vectors
    assert np.allclose(
        found, encoder.encode([TEXT[start:stop] for start, stop in spans]), atol=1e-6
    )


def test_some_pieces_have_the_vectors_that_they_have_among_all(bert: Encoder) -> None:
    windows = bert.windows(
        [TEXT, "a dog", TEXT], [_spans(TEXT, 4), [(0, 5)], _spans(TEXT, 9)], window=28
    )
    whole, some = bert.embed_pieces(windows), np.arange(0, len(windows.pieces), 3)
    assert np.allclose(bert.embed_pieces(windows, some).vectors, whole.vectors[some], atol=1e-6)
    assert len(bert.embed_pieces(windows, some[:0]).vectors) == 0


def test_equal_keys_are_equal_windows_and_places_in_them(bert: Encoder) -> None:
    spans = _spans(TEXT, 5)
    windows = bert.windows([TEXT, TEXT], [spans, spans], window=30)
    count = len(spans)
    assert windows.keys[:count] == windows.keys[count:]
    assert len(set(windows.keys)) == count
    changed = bert.windows([TEXT[:-3] + "cat"], [_spans(TEXT[:-3] + "cat", 5)], window=30)
    assert changed.keys[:3] == windows.keys[:3]
    assert changed.keys[-1] != windows.keys[count - 1]


def test_a_piece_of_signs_that_the_tokenizer_drops_has_a_vector(bert: Encoder) -> None:
    text = "dog cat  \0\0"
    found = bert.embed_pieces(bert.windows([text], [[(0, 7), (9, 11)]]))
    assert np.isfinite(found.vectors).all()


@pytest.mark.parametrize("pooler", ["prompt:template=the {text} [MASK]", "remove-biases"])
def test_poolers_that_change_the_text_are_refused(pooler: str) -> None:
    encoder = Encoder.load("minilm", pooler=pooler, dtype="float32", device="cpu")
    with pytest.raises(OptionError, match="changes the text"):
        encoder.windows(["dog"], [[(0, 3)]])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": 500}, "window=500 is more than"),
        ({"window": 2}, "no room"),
        ({"window": 9, "overlap": 7}, "give less"),
    ],
)
def test_windows_without_room_are_refused(given: dict[str, int], said: str, bert: Encoder) -> None:
    with pytest.raises(OptionError, match=said):
        bert.windows(["dog"], [[(0, 3)]], **given)


def test_the_last_token_of_a_causal_model_is_refused_and_its_mean_is_not(tmp_path: Path) -> None:
    save_family("gpt2", tmp_path)
    spans = [[(0, 3), (4, 7)]]
    with pytest.raises(OptionError, match="last-token of a causal model"):
        Encoder.load(str(tmp_path), pooler="last-token", device="cpu").windows(["a b c d"], spans)
    encoder = Encoder.load(str(tmp_path), pooler="mean", device="cpu")
    assert encoder.embed_pieces(encoder.windows(["a b c d"], spans)).vectors.shape[0] == 2


def test_the_last_token_of_other_models_is_not_refused(tiny: dict[str, Path]) -> None:
    encoder = Encoder.load(str(tiny["bert"]), pooler="last-token", device="cpu")
    assert (
        encoder.embed_pieces(encoder.windows(["dog cat"], [[(0, 3), (4, 7)]])).vectors.shape[0] == 2
    )


def test_a_document_is_the_mean_of_its_pieces_by_their_tokens_before_it_is_normalised(
    bert: Encoder,
) -> None:
    pieces = ["a man is playing", "dog", "the child is riding a big red horse", "cat dog", "cat"]
    tokens, bounds = np.array([4, 1, 8, 2, 1]), np.array([0, 3, 4, 5])
    found = bert.finish_means(bert.start(bert.plan(bert.tokenize(pieces))), bounds, tokens)
    plain = bert.embed(bert.tokenize(pieces))
    pooled = plain.vectors * plain.norms[:, None]
    means = np.array([np.average(pooled[:3], axis=0, weights=tokens[:3]), pooled[3], pooled[4]])
    norms = np.linalg.norm(means, axis=1)
    assert np.allclose(found.norms, norms, rtol=1e-5)
    assert np.allclose(found.vectors, means / norms[:, None], atol=1e-6)
    assert np.allclose(found.vectors[1:], plain.vectors[3:], atol=1e-7)
