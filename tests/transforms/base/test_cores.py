"""Work side by side, a core each."""

import pytest
import torch

from sentence_beam.transforms.base.cores import Cores, one_core


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_keep_the_order_and_each_thread_has_one_core(two_threads):
    found = list(
        Cores().map(
            lambda i: (i, torch.get_num_threads(), torch.is_inference_mode_enabled()), range(50)
        )
    )
    assert found == [(i, 1, True) for i in range(50)]
    assert torch.get_num_threads() == 2


def test_an_error_reaches_the_caller(two_threads):
    def fail(item: int) -> int:
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        list(Cores().map(fail, range(4)))


def test_one_core_is_for_the_block_alone() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_core():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_one_piece_of_work_runs_on_one_core(two_threads):
    assert Cores().run(torch.get_num_threads) == 1
    assert torch.get_num_threads() == 2
