"""Measure how well one process drives several devices, which sleep as long as a GPU would compute.

Measured is the work before and after them: batches from one queue, a thread each, vectors put into
order, normalised. `python -m benchmarks.devices`
"""

import argparse
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.common import report, seconds
from sentence_beam.transforms.encoder.batches import Batch, BatchStats, plan_batches
from sentence_beam.transforms.encoder.devices import Devices, Passing, pooled_unit
from sentence_beam.transforms.encoder.finish_vectors import finish
from sentence_beam.transforms.encoder.replica import PooledBatch
from sentence_beam.transforms.encoder.tokenize import Tokenized

TOKENS, TOKENS_PER_BATCH, LENGTH, DIM = 1_048_576, 65_536, 32, 384


class SleepingReplica:
    """A replica on a device that computes so many tokens a second."""

    device = torch.device("cpu")

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def __call__(self, batch: Batch) -> list[PooledBatch]:
        """Vectors of nothing, after the time that the batch takes."""
        time.sleep(len(batch.ids) / self._speed)
        rows = len(batch.rows)
        return [
            PooledBatch(
                batch.rows,
                torch.ones(rows, DIM),
                torch.zeros(rows, dtype=torch.uint8),
                BatchStats(),
            )
        ]


def run(count: int, speed: float) -> None:
    """Four units for each device, handed over one ahead."""
    replicas: Any = [SleepingReplica(speed) for _ in range(count)]
    devices, rows, space = (
        Devices(replicas),
        TOKENS // LENGTH,
        SimpleNamespace(truncate_dim=None, normalize=True),
    )
    offsets = np.arange(rows + 1, dtype=np.int64) * LENGTH
    none = np.zeros(rows, bool)
    tokenized = Tokenized(
        np.zeros(TOKENS, np.int32), offsets, np.full(rows, LENGTH, np.int32), none
    )
    before = None
    for _ in range(4 * count):
        batches = list(plan_batches(tokenized, TOKENS_PER_BATCH))
        now = Passing(
            rows, devices.map(SleepingReplica.__call__, batches, lambda _: None), count, 0.0
        )
        for passing in [before] if before else []:
            finish(pooled_unit(passing, DIM).vectors, space)  # type: ignore[arg-type]
        before = now
    if before is not None:
        finish(pooled_unit(before, DIM).vectors, space)  # type: ignore[arg-type]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--speed", type=float, default=1e6, help="tokens a second of a device (default: a million)"
    )
    parser.add_argument("--output", help="write the figures as JSON here")
    args = parser.parse_args()
    took = {count: seconds(lambda count=count: run(count, args.speed)) for count in (1, 2, 4)}
    rows = [
        (f"{n} devices over one", f"{n * took[1] / took[n]:.2f}x", f">= {0.9 * n:.1f}x")
        for n in (2, 4)
    ]
    report(f"devices of {args.speed:,.0f} tokens/s", rows, args.output, {"seconds": took})


if __name__ == "__main__":
    main()
