"""`sentence-beam evaluate`: scores of poolers on pairs of sentences, all of them from one forward pass."""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines import command, options, pictures
from pipelines.output import aligned, check_file
from transforms.calibration import Calibration, check_space
from transforms.errors import OptionError
from transforms.evaluation.pairs_file import ScoredPairs, read_pairs
from transforms.evaluation.sts import Subset, geometry, score_task
from transforms.space import DEFAULT_MODEL, parse_pooler, resolve_model
from transforms.store.calibrations import read_calibration

if TYPE_CHECKING:
    from transforms.evaluation.encode_many import ModelOptions

EVERY_HEAD = "ditto:*"
HEADS = (
    "task",
    "pooler",
    "calibration",
    "dim",
    "pairs",
    "all",
    "mean",
    "wmean",
    "pearson",
    "uniform",
    "align",
    "cosine",
)


@dataclass(frozen=True)
class Task:
    """A named task: one or more files of sentence pairs that are scored together."""

    name: str
    files: tuple[ScoredPairs, ...]

    @property
    def sentences(self) -> list[str]:
        """All sentences of the task, duplicates kept."""
        return [text for pairs in self.files for text in (*pairs.first, *pairs.second)]


def parser() -> argparse.ArgumentParser:
    """The options of `evaluate`."""
    p = options.command("evaluate", "Score poolers on tasks of sentence pairs with human similarity scores.")
    task = "tab-separated score, sentence1, sentence2; repeat for more"
    p.add_argument("--task", action="append", required=True, metavar="NAME=PATH[,PATH]", help=task)
    p.add_argument("--model", default=DEFAULT_MODEL, metavar="MODEL", help=options.MODEL)
    p.add_argument("--revision", metavar="R", help="revision of a Hugging Face id (default: the hub's)")
    pooler = f"repeat for more; {EVERY_HEAD} is every head (default: auto)"
    p.add_argument("--pooler", action="append", metavar="SPEC", help=pooler)
    calibration = "a folder that fit made: score the vectors it was fitted for with it too; repeat for more"
    p.add_argument("--calibration", action="append", metavar="PATH", help=calibration)
    dims = "score the first D components too; repeat for more"
    p.add_argument("--truncate-dim", action="append", type=options.positive, metavar="D", help=dims)
    p.add_argument(
        "--max-tokens", type=options.positive, metavar="N", help="cut longer texts (default: the model's limit)"
    )
    dtypes = ["auto", "float32", "bfloat16", "float16"]
    p.add_argument("--dtype", choices=dtypes, default="float32", help="type of the forward pass (default: float32)")
    p.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help=options.DEVICE)
    p.add_argument("--output", metavar="FILE", help=f"JSON lines; a heat map (PNG) beside it for {EVERY_HEAD}")
    return p


def _evaluate(args: argparse.Namespace) -> None:
    if args.output:
        check_file(args.output)
    tasks = read_tasks(args.task)
    poolers, grid = expand(args)
    if grid and args.output:
        pictures.check_installed()
    rows = list(evaluate(args, tasks, poolers))
    print(table(rows))
    if args.output:
        write(args.output, rows)
        if grid:
            pictures.draw_heads(args.output, rows, [task.name for task in tasks], grid)


def read_tasks(words: list[str]) -> list[Task]:
    """The tasks that the values of `--task` name. Raises OptionError for a name that is given twice."""
    tasks = [read_task(word) for word in words]
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"--task {twice} is given twice; say {twice}=PATH,PATH for several files of one task")
    return tasks


def read_task(word: str) -> Task:
    """The task that one value of `--task` names. Raises OptionError for a value of another form."""
    name, equals, paths = word.partition("=")
    if not equals or not name or not paths:
        raise OptionError(f"--task {word}: say NAME=PATH, or NAME=PATH,PATH for several files of one task")
    if "/" in name:  # a picture is named by it
        raise OptionError(f"--task {word}: the name {name} must not hold a slash")
    return Task(name, tuple(read_pairs(path) for path in paths.split(",")))


def expand(args: argparse.Namespace) -> tuple[list[str], tuple[int, int] | None]:
    """The poolers, `ditto:*` as one for each head, and the number of blocks and heads for it (None without it)."""
    poolers: list[str] = []
    grid = None
    for spec in args.pooler or ["auto"]:
        if not spec.startswith(EVERY_HEAD):
            parse_pooler(spec)
            poolers.append(spec)
            continue
        files = resolve_model(args.model, args.revision)
        grid = (files.layers, files.heads)
        every = [(block, head) for block in range(1, grid[0] + 1) for head in range(1, grid[1] + 1)]
        poolers += [spec.replace("*", f"{block}-{head}", 1) for block, head in every]
    return list(dict.fromkeys(poolers)), grid


def evaluate(args: argparse.Namespace, tasks: list[Task], poolers: list[str]) -> Iterator[dict[str, Any]]:
    """The scores: a row for each pooler, calibration, task, dimension and subset."""
    from transforms.evaluation.encode_many import ModelOptions, encode_many

    place: dict[str, int] = {}
    for task in tasks:
        for text in task.sentences:
            place.setdefault(text, len(place))
    source = ModelOptions(args.model, args.revision, args.max_tokens, args.dtype, args.device)
    calibrations = matched(source, poolers, args.calibration or [])
    with tempfile.TemporaryDirectory() as folder:
        for pooler, vectors in encode_many(source, poolers, list(place), folder):
            for path, calibration in [(None, None), *calibrations[pooler].items()]:
                final = vectors if calibration is None else calibration.apply(vectors)
                names = {"pooler": pooler, "calibration": path}
                for task in tasks:
                    yield from score(task, names, final, place, args.truncate_dim or [])


def matched(source: "ModelOptions", poolers: list[str], paths: list[str]) -> dict[str, dict[str, Calibration]]:
    """The calibrations that were fitted on each pooler's vectors, by pooler and path.

    Raises SpaceMismatchError for a calibration of none of the poolers.
    """
    found: dict[str, dict[str, Calibration]] = {pooler: {} for pooler in poolers}
    spaces = {pooler: source.space(pooler) for pooler in poolers} if paths else {}
    for path in paths:
        calibration = read_calibration(path)
        fitting = [pooler for pooler, space in spaces.items() if space.pooled_id == calibration.pooled_id]
        if not fitting:
            check_space(calibration.info, next(iter(spaces.values())), path)
        for pooler in fitting:
            found[pooler][path] = calibration
    return found


def score(
    task: Task, names: dict[str, Any], vectors: np.ndarray, place: dict[str, int], dims: list[int]
) -> Iterator[dict[str, Any]]:
    """The rows of one task, pooler and calibration (`names`); the geometry of the vectors is in the `all` rows."""
    subsets = [
        Subset(pairs.name, pairs.gold, *(np.array([place[t] for t in side]) for side in (pairs.first, pairs.second)))
        for pairs in task.files
    ]
    full = vectors.shape[1]
    for dim in dict.fromkeys([*(d for d in dims if d < full), full]):
        cut = vectors[:, :dim]
        for found in score_task(subsets, cut):
            row = {"task": task.name, "subset": found.subset, **names, "dim": dim}
            row |= {"n": found.n, "spearman": finite(found.spearman), "pearson": finite(found.pearson)}
            if found.subset == "all":
                row |= {name: finite(value) for name, value in asdict(geometry(subsets, cut)).items()}
            yield row


def finite(value: float) -> float | None:
    """The value with six decimals; None for infinities and NaN, which JSON does not have."""
    return round(value, 6) if math.isfinite(value) else None


def table(rows: list[dict[str, Any]]) -> str:
    """The scores as text, with a line for each task, pooler, calibration and dimension."""
    lines = []
    for row in (r for r in rows if r["subset"] == "all"):
        same = [r for r in rows if all(r[k] == row[k] for k in ("task", "pooler", "calibration", "dim"))]
        by = {r["subset"]: r["spearman"] for r in same[:3]}
        numbers = [by["all"], by["mean"], by["wmean"], row["pearson"]]
        numbers += [row[name] for name in ("uniformity", "alignment", "mean_cosine")]
        cells = ["-" if value is None else f"{value:.2f}" for value in numbers]
        lines.append((row["task"], row["pooler"], row["calibration"] or "-", str(row["dim"]), str(row["n"]), *cells))
    return "\n".join(aligned(HEADS, lines, frozenset(HEADS[3:])))


def write(path: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows as JSON lines."""
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


main = command.main(parser, _evaluate)

if __name__ == "__main__":
    sys.exit(main())
