"""Calibrations: the moments pass in GB/s of vectors against numpy.cov in memory, and what applying
one costs.

    python -m benchmarks.calibration [--sentences FOLDER] [--vectors 200000] [--dim 384]
        [--rows 1000] [--runs 5]
                                     [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). Set OMP_NUM_THREADS=1 for one core.
The pass reads shards of float32 vectors of length 1 and their norms, checksums included, and draws
its sample by hash; numpy.cov has the float32 vectors in memory, and it widens them too. Applying:
seconds of `Calibration.apply` on as many vectors as `Encoder.encode` took sentences, over the
seconds of that; the flow's are in `benchmarks.flow`.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import SENTENCES, interleaved, median_ratio, real_texts, report
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.base.arrow_arrays import fixed_size
from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.methods import AFFINE, fit_affine
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.steps.fit.gathered_vectors import GatherJob, gather
from sentence_beam.transforms.store.shards.shard_bytes import ROW_GROUP_ROWS

SHARDS = 8


def write_shards(folder: Path, vectors: np.ndarray) -> tuple[str, ...]:
    """The vectors as a store has them."""
    paths, hashes = [], np.random.default_rng(1).bytes(16 * len(vectors))
    for number, rows in enumerate(np.array_split(np.arange(len(vectors)), SHARDS)):
        part = vectors[rows]
        norm = np.linalg.norm(part, axis=1)
        columns = {
            "id": [f"part-{number}.parquet#{row}" for row in rows],
            "embedding": fixed_size(part / norm[:, None]),
        }
        columns["row_hash"] = pa.array(
            [hashes[16 * row : 16 * row + 16] for row in rows], pa.binary(16)
        )
        paths.append(str(folder / f"{number}.parquet"))
        pq.write_table(
            pa.table({**columns, "norm": norm}), paths[-1], row_group_size=ROW_GROUP_ROWS,
            use_dictionary=False, compression="none", write_page_checksum=True,
        )  # fmt: skip
    return tuple(paths)


def one_pass(shards: tuple[str, ...], job: GatherJob) -> None:
    """Do one worker's part of the fit: read its shards and sum their moments."""
    found = gather((0, shards), job).moments
    assert found is not None
    found.covariance(sample=True)


def measure_moments(vectors: np.ndarray, runs: int) -> dict[str, list[float]]:
    """Seconds of the pass, of the sums alone, and of numpy.cov."""
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Path(folder), vectors)
        job = GatherJob(f"{folder}/sample", 10_000, len(vectors), normalized=True, whole=True)
        works = {
            "pass": partial(one_pass, shards, job),
            "sums": partial(Moments.from_rows, vectors),
        }
        works["cov"] = partial(np.cov, vectors, rowvar=False)
        for work in works.values():
            work()
        return interleaved(works, runs)


def measure_apply(texts: list[str], runs: int) -> dict[str, list[float]]:
    """Seconds of encoding and of each affine calibration of the vectors."""
    encoder = Encoder.load("minilm", normalize=False)
    vectors = encoder.encode(texts)
    works = {"encode": partial(encoder.encode, texts)}
    for name in AFFINE:
        spec = parse_calibration(name)
        tensors = fit_affine(spec, Moments.from_rows(vectors)).tensors
        dim = tensors["kernel"].shape[1] if "kernel" in tensors else vectors.shape[1]
        works[name] = partial(
            Calibration.make(spec, tensors, (vectors.shape[1], dim), {}, {}).apply, vectors
        )
    return interleaved(works, runs)


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--vectors", type=int, default=200_000)
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--rows", type=int, default=1000)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    vectors = np.random.default_rng(0).normal(1, 2, (args.vectors, args.dim)).astype(np.float32)
    took = measure_moments(vectors, args.runs)
    speed = vectors.nbytes / sorted(took["pass"])[args.runs // 2] / 1e9
    rows = [
        (
            f"moments pass, {speed:.2f} GB/s, over numpy.cov",
            f"{median_ratio(took['cov'], took['pass']):.2f}x",
            "0.7x",
        ),
        (
            "the same without reading and drawing",
            f"{median_ratio(took['cov'], took['sums']):.2f}x",
            "",
        ),
    ]
    applied = measure_apply(real_texts(args.sentences, args.rows), args.runs)
    for name in AFFINE:
        share = 100 * median_ratio(applied[name], applied["encode"])
        rows.append((f"applying {name}, share of encoding", f"{share:.2f} %", "bar 3 %"))
    title = f"calibrations, {args.vectors:,} vectors, d = {args.dim}"
    report(title, rows, args.output, {"moments": took, "apply": applied})


if __name__ == "__main__":
    main()
