"""Train with several seeds, and report the spread of the scores."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.training.folders import write_json
from sentence_beam.transforms.training.train_options import TrainOptions
from sentence_beam.transforms.training.training_progress import Say
from sentence_beam.transforms.training.training_run import train

RECORD = "seeds.json"
SETS = ("dev", "test")


def train_seeds(options: TrainOptions, count: int, say: Say) -> dict[str, Any]:
    """Train with `count` seeds from `--seed` on, each in its own folder below the output.

    Returns the content of the output's `seeds.json`: the folder and scores of each seed, and mean,
    standard deviation (of n - 1), least and greatest of the dev and test scores. The best seed has
    the best dev score. Raises OptionError without scores to compare, and what `train` raises.
    """
    if options.dev is None and options.test is None:
        raise OptionError(
            f"{cite('seeds')} compares scores; say {cite('dev')} PATH or {cite('test')} PATH too"
        )
    output = Path(storage.absolute(options.output))
    runs = []
    for seed in range(options.seed, options.seed + count):
        name = f"seed-{seed}"
        say(format_summary_line("seed", f"{seed}, into {output / name}"))
        trained = train(replace(options, seed=seed, output=str(output / name)), say)
        runs.append(
            {
                "seed": seed,
                "folder": name,
                **{part: trained[part] for part in SETS if trained.get(part)},
            }
        )
    spread = {
        part: measure_spread([run[part]["score"] for run in runs])
        for part in SETS
        if part in runs[0]
    }
    record = {
        "format": 1,
        "output": str(output),
        "metric": str(next(runs[0][part]["metric"] for part in SETS if part in runs[0])),
        "seeds": runs,
        **spread,
        "best": choose_best(runs),
    }
    write_json(output / RECORD, record)
    return record


def measure_spread(scores: Sequence[float | None]) -> dict[str, float] | None:
    """Return mean, standard deviation, least and greatest of scores; None if one is undefined."""
    scored = [score for score in scores if score is not None]
    if len(scored) < len(scores):
        return None
    deviation = statistics.stdev(scored) if len(scored) > 1 else 0.0
    return {
        "mean": statistics.fmean(scored),
        "deviation": deviation,
        "low": min(scored),
        "high": max(scored),
    }


def choose_best(runs: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the seed with the best dev score, or None. Test scores choose nothing."""
    scored = [run for run in runs if run.get("dev", {}).get("score") is not None]
    if not scored:
        return None
    best = max(scored, key=lambda run: float(run["dev"]["score"]))
    return int(best["seed"])
