"""The options of the commands: a dataclass for each, whose fields declare the options."""

from transforms.steps.options.embed import (
    NO_CALIBRATION,
    PARTITIONS,
    EmbedOptions,
    FitOptions,
    IndexOptions,
    NeighboursOptions,
    PairsOptions,
    SearchOptions,
)

__all__ = [
    "NO_CALIBRATION",
    "PARTITIONS",
    "EmbedOptions",
    "FitOptions",
    "IndexOptions",
    "NeighboursOptions",
    "PairsOptions",
    "SearchOptions",
]
