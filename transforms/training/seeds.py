"""The same training with several seeds, and how far its scores lie apart."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transforms import storage
from transforms.base.errors import OptionError
from transforms.training.options import TrainOptions
from transforms.training.train import Say, train

RECORD = "seeds.json"
SETS = ("dev", "test")


def train_seeds(options: TrainOptions, count: int, say: Say) -> dict[str, Any]:
    """Train with `count` seeds from `--seed` on, each in a folder of its own below the output,
    which are all kept.

    Returns what `seeds.json` of the output says: for each seed its folder and scores, and of the
    dev and test scores mean, standard deviation (of n - 1), least and greatest; the best seed is
    that of the best dev score. Raises OptionError without scores to compare, and what `train`
    raises.
    """
    if options.dev is None and options.test is None:
        raise OptionError("--seeds compares scores; say --dev PATH or --test PATH too")
    output = Path(storage.absolute(options.output))
    runs = []
    for seed in range(options.seed, options.seed + count):
        name = f"seed-{seed}"
        say(f"seed        {seed}, into {output / name}")
        record = train(replace(options, seed=seed, output=str(output / name)), say)
        runs.append(
            {
                "seed": seed,
                "folder": name,
                **{part: record[part] for part in SETS if record.get(part)},
            }
        )
    spread = {
        part: spread_of([run[part]["score"] for run in runs]) for part in SETS if part in runs[0]
    }
    found = {
        "format": 1,
        "output": str(output),
        "metric": _metric(runs[0]),
        "seeds": runs,
        **spread,
        "best": best_of(runs),
    }
    (output / RECORD).write_text(
        json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf8"
    )
    return found


def spread_of(scores: Sequence[float | None]) -> dict[str, float] | None:
    """Mean, standard deviation, least and greatest of scores; None if one is not defined."""
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        return None
    return {
        "mean": statistics.fmean(known),
        "deviation": statistics.stdev(known) if len(known) > 1 else 0.0,
        "low": min(known),
        "high": max(known),
    }


def best_of(runs: Sequence[Mapping[str, Any]]) -> int | None:
    """The seed with the best dev score; None without one. Test scores choose nothing."""
    scored = [run for run in runs if run.get("dev", {}).get("score") is not None]
    if not scored:
        return None
    best = max(scored, key=lambda run: float(run["dev"]["score"]))
    return int(best["seed"])


def _metric(run: Mapping[str, Any]) -> str:
    return str(next(run[part]["metric"] for part in SETS if part in run))
