"""The values of options that are `auto` or not given, and depend on the model or the machine.

docs/reference.py describes the same in its table.
"""

import re
from dataclasses import dataclass

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.space import FLOAT32_ONLY, native_dtype
from sentence_beam.transforms.space.st_modules import METRICS, StModules

UNKNOWN_PROCESSORS = (
    f"{cite('dtype')} auto cannot know the workers' processors; say {cite('dtype')} float32 or"
    " bfloat16"
)
UNIT_TOKENS_ACCELERATOR = 1_048_576
# GPUs with tensor cores for float16 alone, in the names of Beam's accelerator hints
_FLOAT16_ALONE = re.compile(r"(?<![a-z0-9])(t4|v100)(?![a-z0-9])")
AUTOMATIC = ("dtype", "metric", "partition", "unit_tokens")  # the options that this file decides


@dataclass(frozen=True)
class Workers:
    """The machines that embed: `local` if it is this process.

    `accelerator` is the requested one, as Beam's hint has it; None without one.
    """

    accelerator: str | None = None
    device: str = "auto"
    local: bool = True


def decide_dtype(requested: str | None, stored: str | None, family: str, workers: Workers) -> str:
    """Return the dtype in which a model of this family computes.

    Raises OptionError if it depends on the workers' processors, which are not known here.
    """
    if requested is not None and requested != "auto":
        return requested
    if stored is not None:
        return stored
    if family in FLOAT32_ONLY:
        return "float32"
    if workers.accelerator is not None:
        return accelerator_dtype(workers.accelerator)
    if not workers.local:
        raise OptionError(UNKNOWN_PROCESSORS)
    return native_dtype(workers.device)


def accelerator_dtype(hint: str) -> str:
    """Return the type that the GPU of a hint multiplies in hardware.

    >>> accelerator_dtype("type:nvidia-l4;count:1")
    'bfloat16'
    >>> accelerator_dtype("type:nvidia-tesla-t4;count:1")
    'float16'
    """
    return "float16" if _FLOAT16_ALONE.search(hint.lower()) else "bfloat16"


def decide_metric(
    requested: str | None, stored: str | None, modules: StModules, has_index: bool
) -> str:
    """Return the metric of an index.

    Raises OptionError if the run builds an index and no index has the model's metric.
    """
    if requested is not None and requested != "auto":
        return requested
    if requested is None and stored is not None:
        return stored
    return modules.metric if has_index or modules.similarity in (None, *METRICS) else "cosine"


def decide_partition(requested: str | None, stored: str | None) -> str:
    """Return how rows are cut into units."""
    return requested or stored or "file"


def decide_unit_tokens(requested: int | None, stored: int | None, workers: Workers) -> int:
    """Return the estimated tokens of a unit, more of them for a GPU."""
    if requested is not None:
        return requested
    if stored is not None:
        return stored
    if workers.accelerator is not None or workers.device.startswith("cuda"):
        return UNIT_TOKENS_ACCELERATOR
    return UNIT_TOKENS
