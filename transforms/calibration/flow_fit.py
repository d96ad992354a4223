"""Fit a normalizing flow by maximum likelihood; the vectors are not trained."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.base.cores import one_core
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.calibration.flow import (
    FlowParameters,
    forward,
    list_trained_shapes,
    log_scales,
    permute,
)

BATCH = 64
INITIAL_ROWS = 1024
HELD_OUT = 0.02
LEAST_ROWS = 50  # of which one is held out
MAX_HELD_OUT_ROWS = 20_000
MAX_NORM = 1.0
_LOOKS = 50  # points of the loss curve
_WEIGHT_DEVIATION = 0.05
_SMALLEST_DEVIATION = 1e-6
_DEVIATION_FLOOR = 1e-3  # of the median deviation
_NOISE = 1e-6  # least deviation, relative to the others or to their own mean, that is variation

Progress = Callable[[int, int, float], None]


def fit_flow(
    sample: np.ndarray,
    parameters: FlowParameters,
    progress: Progress | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Fit a flow to a sample; return its tensors (float32) and the history of the fit.

    `sample` float32 [n, C] in random order; the first 2 % are held out. The history holds `steps`,
    `rows`, `held_out_rows`, `before`, `after` (mean negative log-likelihood of the held-out rows,
    bits a component) and `curve` ({step, train, held_out}). `progress(step, steps, loss)` is called
    at each point of the curve. Raises `OptionError` for a sample or parameters that do not work,
    `SentenceBeamError` if the loss is not finite.
    """
    sample = np.ascontiguousarray(sample, np.float32)
    parameters.check_dim(sample.shape[1])
    if len(sample) < LEAST_ROWS:
        raise OptionError(
            f"flow: {len(sample)} vectors are too few to fit on; it needs {LEAST_ROWS} or more, "
            "and thousands to be of use; standardize and whitening need fewer"
        )
    held_out = min(MAX_HELD_OUT_ROWS, round(HELD_OUT * len(sample)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = torch.from_numpy(sample).to(device)
    initial = initialise(parameters, rows[held_out:][:INITIAL_ROWS].cpu())
    training = Training(parameters, initial, device)
    with one_core():
        history = train(training, rows[held_out:], rows[:held_out], progress)
    return training.tensors(), history


def initialise(parameters: FlowParameters, rows: Tensor) -> dict[str, Tensor]:
    """Return the tensors before training, float64; the map is then standardisation, reordered.

    Each actnorm gives its own output on these rows mean 0 and variance 1. `live` uint8 [C] is 0
    for components that do not vary: they are only centred, stay near 0, and count in no likelihood.
    """
    random = np.random.default_rng(parameters.seed)
    x = rows.double()
    live = varies(rows.double())
    if not live.any():
        raise OptionError(
            f"flow: no component of the {len(rows)} vectors varies; there is nothing to fit"
        )
    tensors: dict[str, Tensor] = {"live": live.to(torch.uint8)}
    level = 0
    for at_level, at in parameters.steps():
        if at_level != level:
            x = x.chunk(2, dim=1)[0]
            live = live.chunk(2)[0]
            level = at_level
        half = x.shape[1] // 2
        width = parameters.width
        tensors[f"{at}shift"], tensors[f"{at}logs"] = actnorm(x, live)
        if parameters.variant == "paper":
            tensors[f"{at}order"] = torch.from_numpy(random.permutation(2 * half))
        tensors[f"{at}w1"] = draw_normal(random, half, width)
        tensors[f"{at}w2"] = draw_normal(random, width, width)
        tensors[f"{at}w3"] = torch.zeros(width, half, dtype=torch.float64)
        tensors[f"{at}shift3"], tensors[f"{at}logs3"] = torch.zeros(2, half, dtype=torch.float64)
        # with w3 = 0 the coupling adds nothing yet: the step is its actnorm and its permutation
        x = permute(tensors, at, _normalise(x, tensors[f"{at}shift"], tensors[f"{at}logs"]))
        live = permute(tensors, at, live)
        _initialise_coupling(tensors, at, parameters, x[:, :half])
    return tensors


def _initialise_coupling(
    tensors: dict[str, Tensor], at: str, parameters: FlowParameters, first: Tensor
) -> None:
    hidden = first
    for layer in ("1", "2"):
        y = hidden @ tensors[f"{at}w{layer}"]
        shift, logs = actnorm(y, varies(y))
        tensors[f"{at}shift{layer}"] = shift
        tensors[f"{at}logs{layer}"] = logs
        hidden = _normalise(y, shift, logs).relu()


def varies(x: Tensor) -> Tensor:
    """Return which components of the rows vary by more than rounding, bool [C]."""
    deviation = x.std(dim=0, correction=0)
    above = deviation[deviation > 0]
    typical = above.median() if len(above) else deviation.new_zeros(())
    return ~(deviation <= _NOISE * torch.maximum(typical, x.mean(dim=0).abs()))


def actnorm(x: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shift and trained log-scale [C] that give the rows mean 0 and variance 1.

    Components that are not `live` are not scaled up. A deviation counts as at least a thousandth of
    the median one.
    """
    shift = -x.mean(dim=0)
    deviation = (x + shift).square().mean(dim=0).sqrt()
    typical = deviation[live].median() if live.any() else deviation.new_ones(())
    deviation = torch.where(live, deviation.clamp(min=_DEVIATION_FLOOR * typical), typical)
    return shift, -(deviation + _SMALLEST_DEVIATION).log() / 3


def _normalise(x: Tensor, shift: Tensor, logs: Tensor) -> Tensor:
    return (x + shift) * log_scales(logs).exp()


def draw_normal(random: np.random.Generator, rows: int, columns: int) -> Tensor:
    """Draw the first weights of a layer, float64 [rows, columns]."""
    return torch.from_numpy(random.normal(0.0, _WEIGHT_DEVIATION, (rows, columns)))


@dataclass
class Training:
    """A flow in training; its trained tensors are views of one vector, which one step updates."""

    parameters: FlowParameters
    initial: Mapping[str, Tensor]
    device: torch.device
    dtype: torch.dtype = torch.float32
    updates: int = field(default=0, init=False)
    norm: Tensor = field(init=False)

    def __post_init__(self) -> None:
        dim = len(self.initial["live"])
        self.shapes = list_trained_shapes(self.parameters, dim)
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        flat = torch.cat([self.initial[name].reshape(-1) for name in self.shapes])
        self.flat = flat.to(self.device, self.dtype).requires_grad_()
        self._logs = sum(math.prod(shape) for name, shape in self.shapes.items() if ".logs" in name)
        self.live = self._mark_live()
        self.dim = int(self.initial["live"].sum())
        self._fixed = {
            name: value.to(self.device)
            for name, value in self.initial.items()
            if name.endswith("order")
        }
        self._mean = torch.zeros_like(self.flat)
        self._square = torch.zeros_like(self.flat)

    def _mark_live(self) -> Tensor:
        """Return 1 for each step's log-scale that counts in the log-determinant, in their order."""
        live = self.initial["live"].to(self.dtype)
        level = 0
        steps = []
        for at_level, at in self.parameters.steps():
            if at_level != level:
                live = live.chunk(2)[0]
                level = at_level
            steps.append(live)
            live = permute(self.initial, at, live)
        return torch.cat(steps).to(self.device)

    def loss(self, x: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of the rows, in bits a varying component."""
        logs = log_scales(self.flat[: self._logs])
        values = torch.cat([logs.exp(), self.flat[self._logs :]]).split(self._sizes)
        ready = {
            name.replace(".logs", ".scale"): value.view(shape)
            for (name, shape), value in zip(self.shapes.items(), values, strict=True)
        }
        z = forward(ready | self._fixed, self.parameters, x)
        log_det = logs[: len(self.live)] @ self.live
        energy = z.square().sum() / (2 * len(x)) + self.dim * 0.5 * math.log(2 * math.pi)
        return (energy - log_det) / (self.dim * math.log(2))

    def step(self, x: Tensor) -> Tensor:
        """Make one update on a batch; return the loss before it.

        The objective is twice the loss, as over pairs.
        """
        loss = self.loss(x)
        (gradient,) = torch.autograd.grad(2 * loss, self.flat)
        with torch.no_grad():
            self.norm = gradient.norm()
            self._update(gradient * (MAX_NORM / self.norm.clamp(min=MAX_NORM)))
        return loss.detach()

    def _update(self, gradient: Tensor) -> None:
        self.updates += 1
        lr = self.parameters.lr
        self._mean.lerp_(gradient, 0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        if self.parameters.variant == "paper":
            mean_correction = 1 - 0.9**self.updates
            root = (self._square / (1 - 0.999**self.updates)).sqrt_().add_(1e-8)
            self.flat.addcdiv_(self._mean, root, value=-lr / mean_correction)
        else:  # decay on everything and no bias correction, as in the authors' code
            direction = self._mean / self._square.sqrt().add_(1e-6)
            self.flat.mul_(1 - 0.01 * lr).add_(direction, alpha=-lr)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the flow's tensors: trained ones float32, permutations int64, `live` uint8."""
        flat = self.flat.detach().cpu().float().split(self._sizes)
        trained = {
            name: value.view(shape).numpy().copy()
            for (name, shape), value in zip(self.shapes.items(), flat, strict=True)
        }
        fixed = {name: value.numpy() for name, value in self.initial.items() if name not in trained}
        return trained | fixed


def train(
    training: Training, rows: Tensor, held_out: Tensor, progress: Progress | None = None
) -> dict[str, Any]:
    """Train for the requested epochs and return the history."""
    batch = min(BATCH, len(rows))
    epochs = training.parameters.epochs
    steps = int(epochs * (len(rows) // batch))
    if epochs:
        steps = max(steps, 1)
    marks = {round(steps * look / _LOOKS) for look in range(1, _LOOKS + 1)}
    before = _measure_loss(training, held_out, 0)
    curve: list[dict[str, Any]] = [{"step": 0, "train": None, "held_out": before}]
    losses: list[Tensor] = []
    for step, chosen in enumerate(_draw_batches(training, len(rows), batch, steps), start=1):
        losses.append(training.step(rows[chosen]))
        if step in marks:
            after = _measure_loss(training, held_out, step)
            mean = float(torch.stack(losses).mean())
            curve.append({"step": step, "train": mean, "held_out": after})
            losses.clear()
            if progress is not None:
                progress(step, steps, after)
    return {
        "steps": steps,
        "rows": len(rows),
        "held_out_rows": len(held_out),
        "components": training.dim,
        "before": before,
        "after": curve[-1]["held_out"],
        "curve": curve,
    }


def _draw_batches(training: Training, rows: int, batch: int, steps: int) -> Iterator[Tensor]:
    """Yield the rows of each step: each epoch in a new order, without an incomplete last batch."""
    random = np.random.default_rng([training.parameters.seed, 1])
    each = rows // batch
    for step in range(steps):
        if step % each == 0:
            order = torch.from_numpy(random.permutation(rows)).to(training.device)
        at = step % each * batch
        yield order[at : at + batch]


def _measure_loss(training: Training, held_out: Tensor, step: int) -> float:
    with torch.no_grad():
        total = sum(float(training.loss(part)) * len(part) for part in held_out.split(1024))
    loss = total / len(held_out)
    if not math.isfinite(loss):
        lower = f"say a lower lr than {training.parameters.lr:g}"
        mend = lower if step else "the vectors are not finite or too long"
        raise SentenceBeamError(f"flow: the loss is not finite after {step} steps; {mend}")
    return loss
