"""The normalizing flow: training steps a second against plain torch of the same shapes, and what
applying it costs.

    python -m benchmarks.flow [--sentences FOLDER] [--dim 384] [--steps 300] [--rows 1000]
        [--runs 5] [--output FILE]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). Plain torch: modules, automatic
differentiation, `clip_grad_norm_` and `torch.optim.AdamW`, batches of 64. Applying: seconds of
`Calibration.apply` on as many vectors as `Encoder.encode` took sentences, over the seconds of that.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import SENTENCES, interleaved, median_ratio, real_texts, report
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.flow import FlowParameters
from sentence_beam.transforms.calibration.flow_fit import BATCH, Training, fit_flow, initialise
from sentence_beam.transforms.encoder import Encoder


class Actnorm(nn.Module):
    """A layer that shifts and scales each component by a learnt number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift, self.logs = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.shift) * torch.exp(3 * self.logs)


class Step(nn.Module):
    """A step of the flow: actnorm, components reversed, additive coupling of their halves."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.actnorm, half = Actnorm(width), width // 2
        layers: list[nn.Module] = []
        for rows in (half, hidden):
            layers += [nn.Linear(rows, hidden, bias=False), Actnorm(hidden), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Linear(hidden, half, bias=False), Actnorm(half))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.actnorm(x).flip(1).chunk(2, 1)
        return torch.cat([first, second + self.net(first)], 1)


class Plain(nn.Module):
    """The flow as anybody would write it."""

    def __init__(self, parameters: FlowParameters, dim: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            nn.ModuleList(Step(dim >> level, parameters.width) for _ in range(parameters.depth))
            for level in range(parameters.levels)
        )
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=parameters.lr, eps=1e-6)

    def train_step(self, x: Tensor) -> None:
        """Update the weights once by the likelihood of rows [n, dim]."""
        done, log_det, rows = [], torch.zeros(()), x
        for number, level in enumerate(self.levels):
            if number:
                x, half = x.chunk(2, 1)
                done.append(half)
            for step in level:
                x, log_det = step(x), log_det + 3 * step.actnorm.logs.sum()
        z = torch.cat([*done, x], 1)
        loss = 2 * (z.square().sum() / (2 * len(rows)) - log_det) / rows.shape[1]
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.optimizer.step()


def over_batches(step: Callable[[Tensor], object], rows: Tensor, steps: int) -> None:
    """Call `step` so many times with batches of the rows, which begin again at their end."""
    for number in range(steps):
        start = number * BATCH % len(rows)
        step(rows[start : start + BATCH])


def train_ratio(dim: int, steps: int, runs: int) -> tuple[float, dict[str, list[float]]]:
    """Steps a second of ours over those of plain torch, one thread, and the seconds of both."""
    torch.set_num_threads(1)
    rows = torch.from_numpy(
        np.random.default_rng(0).normal(size=(100 * BATCH, dim)).astype(np.float32)
    )
    parameters = FlowParameters()
    ours = Training(parameters, initialise(parameters, rows[:1024]), torch.device("cpu"))
    plain = Plain(parameters, dim)
    works = {"plain": partial(over_batches, plain.train_step, rows, steps)}
    works["ours"] = partial(over_batches, ours.step, rows, steps)
    for work in works.values():
        work()
    took = interleaved(works, runs)
    return median_ratio(took["plain"], took["ours"]), took


def apply_ratio(texts: list[str], runs: int) -> tuple[float, dict[str, list[float]]]:
    """Seconds of applying a flow to vectors over those of encoding as many sentences, and the
    seconds of both.
    """
    encoder = Encoder.load("minilm", normalize=False)
    vectors = encoder.encode(texts)
    spec = parse_calibration("flow:epochs=0")
    tensors, _ = fit_flow(vectors, FlowParameters(**spec.parameters))
    flow = Calibration.make(spec, tensors, (vectors.shape[1],) * 2, {}, {})
    took = interleaved(
        {"encode": partial(encoder.encode, texts), "apply": partial(flow.apply, vectors)}, runs
    )
    return median_ratio(took["apply"], took["encode"]), took


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--rows", type=int, default=1000)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    applied, apply_took = apply_ratio(real_texts(args.sentences, args.rows), args.runs)
    trained, train_took = train_ratio(args.dim, args.steps, args.runs)
    each = sorted(args.steps / seconds for seconds in train_took["ours"])[args.runs // 2]
    rows = [
        (f"training, {each:,.0f} steps/s, over plain torch", f"{trained:.2f}x", "close to 1"),
        ("applying, share of encoding", f"{100 * applied:.2f} %", "bar 3 %"),
    ]
    report(f"flow, d = {args.dim}", rows, args.output, {"train": train_took, "apply": apply_took})


if __name__ == "__main__":
    main()
