"""The CNN head over token states."""

from dataclasses import replace

import pytest
import torch
from helpers.token_states import HIDDEN, LAYERS, alone, states

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling import Lexicon, ModelShape, Pooler, build_pooler
from sentence_beam.transforms.pooling.cnn import CnnNetwork
from sentence_beam.transforms.space.pooler_spec import parse_pooler

SHAPE = ModelShape(LAYERS, HIDDEN, HIDDEN, has_cnn_head=True)


def _network() -> CnnNetwork:
    torch.manual_seed(4)
    return CnnNetwork().eval()


def _cnn() -> Pooler:
    return build_pooler(parse_pooler("cnn"), SHAPE, Lexicon(cnn=_network()))


def test_its_size_is_the_papers():
    assert sum(weight.numel() for weight in CnnNetwork().parameters()) == 84_481


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6, 7, 9, 16, 33])
def test_a_text_alone_in_a_batch_and_in_any_padding(tokens):
    drawn = states([3, tokens, 21, 1])
    with torch.inference_mode():
        together = _cnn()(drawn).vectors
        assert together.shape == (4, HIDDEN)
        assert (together.abs() < 1).all()
        for row in range(4):
            assert torch.allclose(_cnn()(alone(drawn, row)).vectors[0], together[row], atol=2e-6)
        text = alone(drawn, 1).hidden[LAYERS].float()
        for before, between in ((0, 5), (4, 0), (2, 3)):
            mask = torch.cat(
                [torch.zeros(before), torch.ones(1), torch.zeros(between), torch.ones(tokens - 1)]
            ).bool()
            laid = torch.full((1, len(mask), HIDDEN), 1e4)
            laid[0, mask] = text
            assert torch.allclose(_network()(laid, mask[None])[0], together[1], atol=2e-6)


def test_tokens_that_do_not_count_change_nothing():
    drawn = states([6, 4])
    keep = torch.tensor([1, 0, 1, 1, 0, 1, 1, 1, 1, 1]).bool()
    wild = {LAYERS: torch.where(keep[:, None], drawn.hidden[LAYERS], float("nan"))}
    with torch.inference_mode():
        found = _cnn()(replace(drawn, keep=keep, hidden=wild)).vectors
        expected = _network()(
            drawn.hidden[LAYERS].float()[:6][keep[:6]][None], torch.ones(1, 4, dtype=torch.bool)
        )
    assert torch.allclose(found[0], expected[0], atol=2e-6)
    assert found.isfinite().all()


def test_each_component_goes_through_by_itself():
    drawn, order = states([5, 11]), torch.randperm(HIDDEN)
    turned = replace(drawn, hidden={LAYERS: drawn.hidden[LAYERS][:, order]})
    with torch.inference_mode():
        assert torch.allclose(_cnn()(turned).vectors, _cnn()(drawn).vectors[:, order], atol=2e-6)


def test_without_weights_its_biases_are_left():
    network = _network()
    with torch.inference_mode():
        for conv in network.convs:
            conv.weight.zero_()
        found = network(torch.randn(2, 9, 4), torch.ones(2, 9, dtype=torch.bool))
        assert torch.allclose(found, torch.tanh(network.convs[-1].bias).expand(2, 4), atol=1e-6)


def test_every_weight_learns():
    network = _network()
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    network(torch.randn(2, 9, 4), mask).square().sum().backward()
    for weight in network.parameters():
        assert weight.grad.isfinite().all()
        assert weight.grad.abs().sum() > 0


def test_no_texts():
    with torch.inference_mode():
        assert _cnn()(states([])).vectors.shape == (0, HIDDEN)


def test_a_model_without_one_is_refused():
    with pytest.raises(OptionError, match="'cnn': the model holds no CNN head"):
        build_pooler(parse_pooler("cnn"), replace(SHAPE, has_cnn_head=False))
    with pytest.raises(OptionError, match="cnn takes no options"):
        parse_pooler("cnn:count=all")
