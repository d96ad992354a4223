"""One command for a machine with a GPU: is what it computes right, what happens without memory, how
fast is it?

    python -m benchmarks.gpu_check [--peak-tflops 790] [--minutes 8] [--output gpu-check]

Needs torch, transformers, this package and no network: all models have random weights. Every
family, pooler and calibration beside the processor, `--deterministic`, batches too large for the
memory; tokens a second by length for models of the shapes of MiniLM, BERT-base and Qwen3-0.6B, the
share of the GPU's peak, the time in which the GPU waits for the host, beside sentence-transformers;
`embed` end to end; an index trained on the GPU. Prints a table and writes it with `.md`, and
everything with `.json`; the exit status is 1 where a line is not what it should be. `--cpu` does
the same in a minute with two CPU devices and small models, whose kernel is a loop over texts: that
the command works.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.common import machine, real_texts
from benchmarks.gpu_exact import Finding, Scope, exactness, out_of_memory, quiet, tried
from benchmarks.gpu_speed import (
    WHOLE,
    Load,
    Place,
    bars,
    beside_peer,
    end_to_end,
    index,
    throughput,
)
from transforms.encoder import Encoder, encoder, forward
from transforms.encoder.devices import resolve_devices
from transforms.encoder.texts_attention import text_by_text
from transforms.index import kmeans

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
ROOM = 64 << 20  # bytes of a GPU's memory beside what is taken, for batches that should not fit
_MOST_ON_CPU = 2048  # tokens of a batch for which the stand-in for a GPU has memory


@dataclass(frozen=True)
class Extent:
    """How much one call does."""

    scope: Scope
    load: Load


GPU = Extent(
    Scope(texts=64, sample=1000, crowd=8000),
    Load(
        {"MiniLM": 4_000_000, "BERT-base": 2_000_000, "Qwen3-0.6B": 500_000},
        LENGTHS,
        20_000,
        400_000,
        100_000,
    ),
)
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
        from pipelines.common import command

        command.quiet_logs()
    quiet()
    if not args.cpu and not torch.cuda.is_available():
        print("gpu-check: torch sees no GPU here; --cpu tries the command itself", file=sys.stderr)
        return 2
    extent = extent or (CPU if args.cpu else GPU)
    until = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder, two_cpus() if args.cpu else ExitStack():
        place = (
            Place("cuda:0", "cpu", None)
            if args.cpu
            else Place("cuda:0", "cuda:0", args.peak_tflops)
        )
        scarce = _scarce_on_cpu if args.cpu else _scarce_on_gpu
        found: list[Finding] = []
        _write(args, found)
        for finding in _printed(_findings(extent, place, Path(folder), scarce), until):
            found.append(finding)
            _write(args, found)  # after each, for whoever has to end it
    failed = [finding.what for finding in found if finding.holds is False]
    print(
        f"{len(found)} lines, {len(failed)} not as they should"
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
        default=790.0,
        help="what the GPU's 16-bit matrix products reach",
    )
    p.add_argument(
        "--minutes", type=float, default=8.0, help="what has not begun by then is left out"
    )
    p.add_argument("--output", default="gpu-check", help="files to write, without .json and .md")
    return p


def _findings(
    extent: Extent, place: Place, where: Path, scarce: Any
) -> Iterator[Callable[[], Iterable[Finding]]]:
    """The parts of the check, the most important first."""
    for name in ("exact", "memory", "end", "index", "speed"):
        (where / name).mkdir()
    scope, load = extent.scope, extent.load
    texts = real_texts(None, max(scope.texts, scope.sample, load.texts))
    yield partial(exactness, scope, texts, place.device, where / "exact")
    yield lambda: [tried("memory in segments that grow", partial(_growing, place.device))]
    scarcely = partial(out_of_memory, scope, texts, place.device, where / "memory", scarce)
    yield lambda: [tried("out of memory", scarcely)]
    yield partial(throughput, load, texts, place, where / "speed")
    yield lambda: [tried(WHOLE, partial(end_to_end, load, texts, place, where / "end"))]
    yield partial(beside_peer, load, texts, place, where / "speed")
    yield lambda: [tried("index trained on the GPU", partial(index, load, place, where / "index"))]


def _printed(parts: Iterator[Callable[[], Iterable[Finding]]], until: float) -> Iterator[Finding]:
    """All findings as they come, until there is no time left; a part that fails is one that does
    not hold.
    """
    begun = time.monotonic()
    for part in parts:
        try:
            for found in part():
                finding, begun = (
                    replace(found, seconds=round(time.monotonic() - begun, 1)),
                    time.monotonic(),
                )
                print(_line(finding), flush=True)
                yield finding
                if time.monotonic() > until:
                    late = Finding("what is left", "not measured", "there was no time left")
                    print(_line(late))
                    yield late
                    return
        except Exception as error:  # the other parts are worth having
            failed = Finding(
                f"{type(error).__name__}", " ".join(str(error).split())[:200], "no error", False
            )
            print(_line(failed), flush=True)
            yield failed


def _line(finding: Finding) -> str:
    mark = {True: "ok", False: "NOT", None: ""}[finding.holds]
    return f"  {mark:<3}  {finding.what:<44}  {finding.measured:<40}  {finding.bar}"


def _write(args: argparse.Namespace, found: list[Finding]) -> None:
    """The table in Markdown and everything in JSON."""
    there = {
        **machine(),
        "gpus": _gpus(),
        "peak_tflops": args.peak_tflops,
        "cpu_stand_in": args.cpu,
    }
    values = {finding.what: (finding.value, finding.holds) for finding in found}
    held = {
        what: {"bar": bar, "measured": None, "holds": None} for what, bar in bars(LENGTHS).items()
    }
    for what, (value, holds) in values.items():
        if what in held:
            held[what] |= {"measured": value, "holds": None if value is None else holds}
    told = {"machine": there, "bars": held, "findings": [asdict(finding) for finding in found]}
    Path(f"{args.output}.json").write_text(json.dumps(told, indent=1) + "\n")
    lines = [
        f"{there['date']}, {', '.join(gpu['name'] for gpu in there['gpus']) or there['cpu']}",
        "",
    ]
    lines += ["| | measured | should be | |", "|---|---|---|---|"]
    for each in found:
        held = {True: "yes", False: "**no**", None: ""}[each.holds]
        lines.append(f"| {each.what} | {each.measured} | {each.bar} | {held} |")
    Path(f"{args.output}.md").write_text("\n".join(lines) + "\n")


def _gpus() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = [
        torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())
    ]
    return [
        {"name": each.name, "bytes": each.total_memory, "cuda": torch.version.cuda}
        for each in found
    ]


def _growing(device: str) -> Finding:
    """Whether torch's allocator has heard what it was told; it listens only before it is first
    used.
    """
    what, bar = "memory in segments that grow", "unless the environment says otherwise"
    if not torch.cuda.is_available():
        return Finding(what, "not measured", bar)
    kept = torch.empty(64 << 20, dtype=torch.uint8, device=device)
    grows = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    del kept
    return Finding(what, "yes" if grows else "no", bar, grows or None)


@contextmanager
def _scarce_on_gpu(_: Encoder) -> Iterator[None]:
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
            text_by_text
            if asked[0] != "cpu" and next(model.parameters()).dtype == torch.bfloat16
            else None
        )

    with (
        patch.object(encoder, "resolve_devices", devices),
        patch.object(forward, "kernel_for", kernel),
        patch.object(kmeans, "_WORTH_A_GPU", 0),
        patch.object(kmeans, "_by_torchs_gpu", lambda *said: kmeans._by_torch(*said, "cpu")),
    ):
        yield


if __name__ == "__main__":
    sys.exit(main())
