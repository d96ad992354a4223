"""Options that are auto or not given: given, else the store's, else by model and machine.

Covers transforms/steps/options/chosen_options.py.
"""

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.dtypes import native_dtype
from sentence_beam.transforms.space.st_modules import StModules
from sentence_beam.transforms.steps.options.auto import (
    UNIT_TOKENS,
    UNIT_TOKENS_ACCELERATOR,
    Workers,
    decide_dtype,
    decide_metric,
    decide_partition,
    decide_unit_tokens,
)

COSINE, DOT, STRANGE = (StModules(similarity=name) for name in ("cosine", "dot", "manhattan"))
HERE, ELSEWHERE = Workers(), Workers(local=False)
L4 = "type:nvidia-l4;count:1;install-nvidia-driver:5xx"
CUDA, ACCELERATED = Workers(device="cuda:1"), Workers(accelerator=L4, local=False)
T4, V100 = (
    Workers(accelerator=f"type:nvidia-tesla-{gpu};count:1", local=False) for gpu in ("t4", "V100")
)


@pytest.mark.parametrize(
    ("given", "stored", "family", "workers", "dtype"),
    [
        ("float16", "bfloat16", "bert", HERE, "float16"),
        ("auto", "bfloat16", "fnet", HERE, "bfloat16"),
        (None, None, "fnet", ACCELERATED, "float32"),
        (None, None, "bert", ACCELERATED, "bfloat16"),
        (None, None, "bert", T4, "float16"),
        (None, None, "bert", V100, "float16"),
        (None, "bfloat16", "bert", T4, "bfloat16"),
        (None, None, "fnet", T4, "float32"),
        ("auto", None, "bert", HERE, native_dtype()),
    ],
)
def test_dtype(given, stored, family, workers, dtype):
    assert decide_dtype(given, stored, family, workers) == dtype


def test_a_dtype_of_unknown_workers_has_to_be_named():
    with pytest.raises(OptionError, match="cannot know the workers' processors"):
        decide_dtype("auto", None, "bert", ELSEWHERE)


@pytest.mark.parametrize(
    ("given", "stored", "modules", "metric"),
    [
        ("l2", "ip", COSINE, "l2"),
        (None, "ip", COSINE, "ip"),
        ("auto", "ip", COSINE, "cosine"),
        (None, None, DOT, "ip"),
        (None, None, STRANGE, "cosine"),
    ],
)
def test_metric(given, stored, modules, metric):
    assert decide_metric(given, stored, modules, has_index=False) == metric


def test_a_metric_that_no_index_has_is_refused_when_one_is_built():
    with pytest.raises(OptionError, match="manhattan"):
        decide_metric(None, None, STRANGE, has_index=True)


@pytest.mark.parametrize(
    ("given", "stored", "partition"),
    [("content", "file", "content"), (None, "content", "content"), (None, None, "file")],
)
def test_partition(given, stored, partition):
    assert decide_partition(given, stored) == partition


@pytest.mark.parametrize(
    ("given", "stored", "workers", "tokens"),
    [
        (7, 8, HERE, 7),
        (None, 8, ACCELERATED, 8),
        (None, None, ACCELERATED, UNIT_TOKENS_ACCELERATOR),
        (None, None, CUDA, UNIT_TOKENS_ACCELERATOR),
        (None, None, HERE, UNIT_TOKENS),
    ],
)
def test_unit_tokens(given, stored, workers, tokens):
    assert decide_unit_tokens(given, stored, workers) == tokens
