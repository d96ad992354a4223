"""One command for a machine with a GPU: is what it computes right, what happens without memory, how
fast is it?

    python -m benchmarks.gpu_check [--peak-tflops X] [--minutes 8] [--output gpu-check]

Needs torch, transformers, this package and no network: all models have random weights. Every
family, pooler and calibration beside the processor, `--deterministic`, batches too large for the
memory; tokens a second by length for models of the shapes of MiniLM, BERT-base and Qwen3-0.6B, the
share of the GPU's measured peak, the time in which the GPU waits for the host, the time of each
operator, beside sentence-transformers; `embed` end to end; several GPUs; an index trained on the
GPU. Each part gets a share of the minutes. Prints a table and writes it with `.md`, and everything
with `.json`, after every line; the exit status is 1 where a line is not what it should be. `--cpu`
does the same in a minute with two CPU devices and small models, whose kernel is a loop over texts:
that the command works.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.common import machine, real_texts
from benchmarks.gpu_exact import (
    Finding,
    Scope,
    calibrations,
    families,
    narrow_poolers,
    out_of_memory,
    poolers,
    quiet,
    same_bits,
    tried,
)
from benchmarks.gpu_machine import SIDE, Place, facts_of_gpus, gpu_place, measure_peak
from benchmarks.gpu_shapes import parts_of_blocks, same_bits_anywhere, several_gpus
from benchmarks.gpu_speed import (
    WHOLE,
    Load,
    Shapes,
    bars,
    beside_peer,
    end_to_end,
    index,
    throughput,
)
from sentence_beam.transforms.encoder import Encoder, choose_runner, encoder, forward, varlen
from sentence_beam.transforms.encoder.devices import resolve_devices
from sentence_beam.transforms.encoder.texts_attention import attend_text_by_text
from sentence_beam.transforms.index import kmeans

LENGTHS = (16, 32, 128, 512)
_SMALL_SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_SMALL_SHAPES = {
    "bert": ("bert", _SMALL_SHAPE),
    "qwen3": ("qwen3", {**_SMALL_SHAPE, "num_key_value_heads": 2}),
}
SEGMENTS = "memory in segments that grow"
ROOM = 64 << 20  # bytes of a GPU's memory beside what is taken, for batches that should not fit
_MOST_ON_CPU = 2048  # tokens of a batch for which the stand-in for a GPU has memory


@dataclass(frozen=True)
class Extent:
    """How much one call does."""

    scope: Scope
    load: Load

    def smaller(self) -> "Extent":
        """Return an eighth of what is timed."""
        load = self.load
        tokens = {name: count // _SMALLER for name, count in load.tokens.items()}
        rows, texts = load.rows // _SMALLER, load.texts // _SMALLER
        return replace(self, load=replace(load, tokens=tokens, rows=rows, texts=texts))


@dataclass(frozen=True)
class Part:
    """A part of the check, and its share of the time that the parts before it leave."""

    name: str
    share: float
    work: Callable[[], Iterable[Finding]]


GPU = Extent(
    Scope(texts=64, sample=1000, crowd=8000),
    Load(
        {"MiniLM": 4_000_000, "BERT-base": 2_000_000, "Qwen3-0.6B": 500_000},
        LENGTHS,
        20_000,
        1_200_000,
        100_000,
    ),
)
_SMALLER = 8  # times smaller is what a GPU without bfloat16 gets
CPU = Extent(
    Scope(texts=12, sample=400, crowd=1000),
    Load(
        dict.fromkeys(_SMALL_SHAPES, 4096), LENGTHS, 200, 1000, 21_000, dim=32, shapes=_SMALL_SHAPES
    ),
)


def main(argv: Sequence[str] | None = None, extent: Extent | None = None) -> int:
    """Check, measure, print and write; 1 where something is not as it should be."""
    args = _parser().parse_args(argv)
    with suppress(ModuleNotFoundError):  # of what only `embed` needs
        from sentence_beam.pipelines.common import command

        command.quiet_logs()
    quiet()
    if not args.cpu and not torch.cuda.is_available():
        print("gpu-check: torch sees no GPU here; --cpu tries the command itself", file=sys.stderr)
        return 2
    extent = extent or (CPU if args.cpu else GPU)
    until = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder, two_cpus() if args.cpu else ExitStack():
        place = Place("cuda:0", "cpu", None, gpus=2) if args.cpu else gpu_place()
        if not place.packs:
            extent = extent.smaller()
        gpus = facts_of_gpus()
        if not args.cpu:
            place = replace(place, peak=args.peak_tflops or measure_peak(place.peer, place.dtype))
        report = Report(args.output, args.cpu, place, gpus)
        if place.peak is not None:
            peak = _peak_line(args.peak_tflops, place)
            print(_line(peak), flush=True)
            report.add(peak)
        scarce = _scarce_on_cpu if args.cpu else scarce_on_gpu
        for finding in _printed(check_parts(extent, place, Path(folder), scarce), until):
            report.add(finding)  # after each, for whoever has to end it
    failed = [finding.what for finding in report.found if finding.holds is False]
    print(
        f"{len(report.found)} lines, {len(failed)} not as they should"
        f" be{': ' if failed else ''}{'; '.join(failed)}"
    )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--cpu", action="store_true", help="two CPU devices in the place of a GPU, small models"
    )
    p.add_argument(
        "--peak-tflops",
        type=float,
        help=f"what 16-bit matrix products reach (default: measured, {SIDE} x {SIDE})",
    )
    p.add_argument(
        "--minutes", type=float, default=8.0, help="what has not begun by then is left out"
    )
    p.add_argument("--output", default="gpu-check", help="files to write, without .json and .md")
    return p


def _peak_line(given: float | None, place: Place) -> Finding:
    how = "measured" if given is None else "given"
    return Finding(f"peak of products in {place.dtype}", f"{place.peak:.0f} TFLOP/s", how)


def check_parts(extent: Extent, place: Place, where: Path, scarce: Any) -> Iterator[Part]:
    """The parts of the check, the most important first."""
    for name in ("exact", "memory", "end", "index", "speed"):
        (where / name).mkdir()
    scope, load = extent.scope, extent.load
    texts = real_texts(None, max(scope.texts, scope.sample, load.texts))
    shapes = Shapes(load, where / "speed")
    scarcely = partial(out_of_memory, scope, texts, place.device, where / "memory", scarce)
    by_index = partial(index, load, place, where / "index")
    ended = partial(end_to_end, load, texts, place, where / "end")
    exact = (scope, texts, place, where / "exact")
    yield Part("families", 0.2, partial(families, *exact))
    yield Part("poolers in 16 bits", 0.15, partial(narrow_poolers, *exact))
    yield Part("poolers", 0.15, partial(poolers, *exact))
    yield Part("calibrations", 0.05, partial(calibrations, *exact))
    yield Part("--deterministic", 0.1, partial(same_bits, *exact))
    yield Part("segments", 0.1, lambda: [tried(SEGMENTS, partial(_growing, place.device))])
    yield Part("out of memory", 0.2, lambda: [tried("out of memory", scarcely)])
    yield Part("tokens a second", 0.4, partial(throughput, shapes, texts, place))
    yield Part("parts of a pass", 0.2, partial(parts_of_blocks, shapes, place))
    yield Part("embed", 0.5, lambda: [tried(WHOLE, ended)])
    yield Part("places in a batch", 0.3, partial(same_bits_anywhere, shapes, place))
    yield Part("several GPUs", 0.3, partial(several_gpus, shapes, place))
    yield Part("sentence-transformers", 0.7, partial(beside_peer, shapes, texts, place))
    yield Part("index", 1.0, lambda: [tried("index trained on the GPU", by_index)])


def _printed(parts: Iterable[Part], until: float) -> Iterator[Finding]:
    """All findings as they come; a part ends when its time is up, and one that fails does not
    hold.
    """
    for part in parts:
        now = time.monotonic()
        for finding in _within(part, now + part.share * max(0.0, until - now)):
            print(_line(finding), flush=True)
            yield finding


def _within(part: Part, until: float) -> Iterator[Finding]:
    """The findings of a part with the seconds of each, until its time is up."""
    begun = time.monotonic()
    if begun >= until:
        yield _left_out(part)
        return
    try:
        for found in part.work():
            ended = time.monotonic()
            yield replace(found, seconds=round(ended - begun, 1))
            begun = ended
            if ended > until:
                yield _left_out(part)
                return
    except Exception as error:  # the other parts are worth having
        yield Finding(
            f"{type(error).__name__}", " ".join(str(error).split())[:200], "no error", False
        )


def _left_out(part: Part) -> Finding:
    return Finding(f"what is left of {part.name}", "not measured", "its time is up")


def _line(finding: Finding) -> str:
    mark = {True: "ok", False: "NOT", None: ""}[finding.holds]
    return f"  {mark:<3}  {finding.what:<44}  {finding.measured:<40}  {finding.bar}"


@dataclass
class Report:
    """The findings so far, written anew with each: the table in Markdown, everything in JSON.

    `output` is the files' name without their ends; `gpus` are the facts of the GPUs before.
    """

    output: str
    stand_in: bool
    place: Place
    gpus: list[dict[str, Any]]
    found: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._machine = machine()
        self._write()

    def add(self, finding: Finding) -> None:
        """Add a line, and write all."""
        self.found.append(finding)
        self._write()

    def _write(self) -> None:
        there = {
            **self._machine,
            "gpus": self.gpus,
            "gpus_now": facts_of_gpus(),  # clocks, power and heat under load
            "dtype": self.place.dtype,
            "peak_tflops": self.place.peak,
            "cpu_stand_in": self.stand_in,
        }
        findings = [asdict(finding) for finding in self.found]
        told = {"machine": there, "bars": self._bars(), "findings": findings}
        Path(f"{self.output}.json").write_text(json.dumps(told, indent=1) + "\n")
        names = ", ".join(gpu["name"] for gpu in self.gpus if "capability" in gpu)
        lines = [f"{there['date']}, {names or there['cpu']}, {there['cores']} cores", ""]
        lines += ["| | measured | should be | |", "|---|---|---|---|"]
        for each in self.found:
            held = {True: "yes", False: "**no**", None: ""}[each.holds]
            lines.append(f"| {each.what} | {each.measured} | {each.bar} | {held} |")
        Path(f"{self.output}.md").write_text("\n".join(lines) + "\n")

    def _bars(self) -> dict[str, dict[str, Any]]:
        """Every bar of speed with what was measured; None if it was not."""
        values = {finding.what: (finding.value, finding.holds) for finding in self.found}
        held: dict[str, dict[str, Any]] = {}
        for what, bar in bars(LENGTHS).items():
            value, holds = values.get(what, (None, None))
            if value is None:
                holds = None
            held[what] = {"bar": bar, "measured": value, "holds": holds}
        return held


def _growing(device: str) -> Finding:
    """Whether torch's allocator has heard what it was told; it listens only before it is first
    used.
    """
    bar = "unless the environment says otherwise"
    if not torch.cuda.is_available():
        return Finding(SEGMENTS, "not measured", bar)
    kept = torch.empty(64 << 20, dtype=torch.uint8, device=device)
    grows = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    del kept
    return Finding(SEGMENTS, "yes" if grows else "no", bar, grows or None)


@contextmanager
def scarce_on_gpu(_: Encoder) -> Iterator[None]:
    """Little memory on the GPU beside what is taken."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(
        min(1.0, (torch.cuda.memory_reserved(0) + ROOM) / total), 0
    )
    taken = _taken_if_there_is_room()
    try:
        yield
    finally:
        del taken
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
        torch.cuda.empty_cache()


def _taken_if_there_is_room() -> Any:
    """All but a little of the GPU's memory, where an allocator with segments that grow heeds no
    fraction.
    """
    try:
        torch.empty(8 * ROOM, dtype=torch.uint8, device="cuda:0")
    except torch.OutOfMemoryError:
        return None
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(0)
    return torch.empty(free - 4 * ROOM, dtype=torch.uint8, device="cuda:0")


@contextmanager
def _scarce_on_cpu(_: Encoder) -> Iterator[None]:
    """Devices that say that they have no memory for large batches."""
    run = forward.Forward.__call__

    def limited(self: forward.Forward, batch: Any) -> Any:
        if len(batch.ids) > _MOST_ON_CPU:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(self, batch)

    with patch.object(forward.Forward, "__call__", limited):
        yield


@contextmanager
def two_cpus() -> Iterator[None]:
    """Two CPU devices in the place of GPUs, with the pass that a GPU takes and its kernel a loop
    over texts.
    """
    asked = ["cpu"]

    def devices(device: str) -> list[torch.device]:
        asked[0] = device
        return resolve_devices("cpu") * (1 if device == "cpu" else 2)

    def kernel(model: Any) -> Any:
        return (
            attend_text_by_text
            if asked[0] != "cpu" and next(model.parameters()).dtype in varlen.DTYPES
            else None
        )

    with (
        patch.object(encoder, "resolve_devices", devices),
        patch.object(choose_runner, "choose_kernel", kernel),
        patch.object(kmeans, "WORTH_A_GPU", 0),
        patch.object(kmeans, "use_torchs_gpu", partial(kmeans.use_torch, device="cpu")),
    ):
        yield


if __name__ == "__main__":
    sys.exit(main())
